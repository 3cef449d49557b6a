// Command round measures the parts of training rounds: the share of a round's time in which clients
// compute, and the use of the rest.
//
//	go run ./proof/bench/round                       # every row of rows.toml, ten minutes
//	go run ./proof/bench/round -rows 'short' -json out.json
//
// Each row is a separate run: a server and three clients as processes, with the quickstart's model
// and data and the settings of the row (rows.go), over loopback or over links with a delay (package
// process). The only input is the event logs of the processes (record.go). All processes use the
// same clock, so their times can be compared. Every moment of a round belongs to exactly one part
// (parts.go), so that the parts add up to the round. The output is two tables of medians over the
// rounds and clients (table.go), with the load of the machine by other work (load.go).
package main
