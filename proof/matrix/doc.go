// Command matrix tests combinations of features. It runs training runs that it draws so that, for any
// two features, every pair of their levels occurs together in some run. It verifies each run.
//
//	go run ./proof/matrix -minutes 30 -seed 1       # rows in order, as many as fit
//	go run ./proof/matrix -seed 1 -row 7            # one of them again
//	go run ./proof/matrix -seed 1 -list             # the rows, without running any
//
// The rows are a covering array (package cover) over the features of features.go: for any two
// features, every pair of their levels occurs together in some row. Every combination that the programs refuse also has a
// row, which must be refused with an explanation before anything starts. The other rows are runs of
// real processes over loopback (run.go), with tiny models, data, a Hub and buckets of this process
// (world.go), a server or a chain (host.go), members (member.go) and incidents (trouble.go).
// Afterwards the host's log is replayed (record.go) and compared with the members' events
// (check.go).
package main
