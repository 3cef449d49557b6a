// Command round takes training rounds apart: what share of a round's time clients compute
// in, and where the rest of it goes.
//
//	go run ./proof/bench/round                       # every row of rows.toml, ten minutes
//	go run ./proof/bench/round -rows 'short' -json out.json
//
// Each row is a run of its own: a server and three clients as processes, with the
// quickstart's model and data and the settings of the row (rows.go), over loopback or over
// links with a delay (package process). What the processes write into their event logs is
// all that is looked at (record.go): all have one clock, so times of different processes
// can be compared. Every moment of a round is given one name (parts.go), so that the parts
// of a round add up to it. Medians over the rounds and clients are printed as two tables
// (table.go), with what else the machine did meanwhile (load.go).
package main
