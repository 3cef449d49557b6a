// Command parity compares the loss of DisTrO with the loss of AdamW at the same number of tokens.
//
//	go run ./proof/bench/parity plan proof/bench/parity/plan.txt    # every run whose log is missing
//	go run ./proof/bench/parity table                         # Markdown, from the logs
//
// A run trains one small Llama on text and writes one log with one JSON object per line. With
// DisTrO it has as many trainers as a run would have clients. Each has its own momentum, trains its
// own share of every batch and writes its result with the real codec. Every replica applies all
// results, and at the end all replicas must be bit-identical.
//
// With --one-replica the members share a replica, and some may attack, with or without audits, to
// measure the cost of attacks.
//
// The learning rate and all other parameters are chosen by the loss on one part of the held-out
// text (validation). The comparison itself uses only the other part (test).
package main
