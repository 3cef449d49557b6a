// Command matrix runs training runs that differ in everything that runs can differ in, two by two, and
// checks after each what has to hold in all.
//
//	go run ./proof/matrix -minutes 30 -seed 1       # rows in order, as many as fit
//	go run ./proof/matrix -seed 1 -row 7            # one of them again
//	go run ./proof/matrix -seed 1 -list             # the rows, without running any
//
// The rows are a covering array (package cover) over the features of features.go: every two levels of
// two features meet in one, and every combination that the programs refuse has a row, which must be
// refused in words before anything is started. The others are runs of real processes over loopback
// (run.go) with tiny models, data, a Hub and buckets of this process (world.go), a server or a chain
// (host.go), members (member.go) and what happens to them (trouble.go). Afterwards the host's log is
// replayed (record.go) and compared with what the members wrote (check.go).
package main
