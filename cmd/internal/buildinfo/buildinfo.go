// Package buildinfo reports the version from which a program was built.
package buildinfo

import (
	_ "embed"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// next is the version of the next release: the only place in the repository that sets a version.
//
//go:embed VERSION
var next string

// commit is the commit from which the program was built, if go build cannot determine it: in a git
// worktree, or from a source archive. The Makefile sets it.
var commit string

// tag is the tag of that commit, or empty. The Makefile and the release tool set it.
var tag string

// Version returns the program's version, such as 0.1.0. Between releases it has the suffix -dev.
func Version() string {
	module := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		module = info.Main.Version
	}
	return version(strings.TrimSpace(next), tag, module)
}

// version returns next if the program was built from next's tag, else next with the suffix -dev.
// module is the version that go build or go install recorded.
func version(next, tag, module string) string {
	if tag == "v"+next || module == "v"+next {
		return next
	}
	return next + "-dev"
}

// Line returns one line with the program's name, version, commit, Go version and platform.
func Line(program string) string {
	revision, modified := "", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			switch {
			case setting.Key == "vcs.revision":
				revision = " " + setting.Value
			case setting.Key == "vcs.modified" && setting.Value == "true":
				modified = " (modified)"
			}
		}
	}
	if revision == "" && commit != "" {
		revision = " " + commit
	}
	return fmt.Sprintf("%s %s%s%s %s %s/%s", program, Version(), revision, modified, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}

// Help converts a command line that starts with the word "help" to a command line that ends with
// the flag --help: "help run status" becomes "run status --help".
func Help(args []string) []string {
	if len(args) == 0 || args[0] != "help" {
		return args
	}
	return append(append([]string(nil), args[1:]...), "--help")
}
