// Command trackers measures the cost of observing a run: the duration of rounds with and without
// trackers, evaluations and all other recording of a client's activity.
//
//	go run ./proof/bench/trackers                  # five clients that train: all of it on, and nothing
//	go run ./proof/bench/trackers -of failures     # the dummy model: trackers that hang, refuse, answer garbage
//
// Each row is a separate run of `psyche testnet start` with processes over loopback. The rows run
// in turn, in blocks, and every other block runs in reverse order, so that other load on the
// machine affects all rows alike. Only rows within a block are compared (rounds.go). Trackers
// connect to a fake service of this process, which behaves as the row requires (standin.go).
package main
