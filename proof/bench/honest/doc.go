// Command honest runs members that do nothing wrong, with audits and without, and counts what they lose.
//
//	go run ./proof/bench/honest                      # every row of rows.toml, twice
//	go run ./proof/bench/honest -rows 'tenth' -json out.json
//
// Each row is a run of its own: a server and some clients as processes, with a model, data and stress
// (stress.go) that the row names (rows.go), once with audits and once without. The host's log is
// replayed afterwards, and the members' event logs are read: which members were tried, ejected or lost the
// model, which steps the run's model does not have, which batches were lost, and the loss at the end
// (table.go). A run with audits that loses something is a fault of the rules, unless its control
// loses the same.
package main
