// Command trackers measures what watching a run costs it: how long rounds take with trackers,
// evaluations and everything else that writes down what a client does, and without.
//
//	go run ./proof/bench/trackers                  # five clients that train: all of it on, and nothing
//	go run ./proof/bench/trackers -of failures     # the dummy model: trackers that hang, refuse, answer garbage
//
// Each row is a run of its own, `psyche testnet start` with processes over loopback. Rows are
// run in turn, in blocks, every other block backwards, so that what the machine does besides
// falls on all alike; what is compared is of one block (rounds.go). Trackers talk to a
// stand-in of this process that does as the row says (standin.go).
package main
