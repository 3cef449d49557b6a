// Command honest measures the losses of honest members in runs with and without audits.
//
//	go run ./proof/bench/honest                      # every row of rows.toml, twice
//	go run ./proof/bench/honest -rows 'tenth' -json out.json
//
// Each row is a separate run: a server and some clients as processes, with the row's model, data
// and stress (stress.go, rows.go). It runs once with audits and once without, as its control.
// Afterwards the command replays the host's log and reads the members' event logs. It reports
// (outcome.go) which members were tried, ejected or lost the model, which steps are missing from the
// run's model, which batches were lost, and the final loss. If a run with audits loses something
// that its control does not lose, the rules are faulty.
package main
