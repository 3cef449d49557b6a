// Plain reports patterns of unidiomatic English in the prose of a repository: Markdown, comments, messages, help
// texts, the strings of the dashboard, and commit subjects.
//
//	go -C tools run ./plain                     the whole repository
//	go -C tools run ./plain README.md core      files and folders, relative to the repository
//	go -C tools run ./plain -changed main       lines and commits added since main
//	go -C tools run ./plain -max markdown=10    exit status 1 above 10 hits per 1,000 lines
//	go -C tools run ./plain -max-folder comment=10    the same for each top-level folder
//
// A hit is a hint. The exit status is 1 if a kind of prose exceeds a limit, and 2 for other errors.
//
// A rule is a regular expression over one sentence, with a few words that a sentence must contain before the
// expression is tried. Source files are split by go/parser for Go, and by a small scanner for C, C++ and JavaScript.
package main
