// Command parity measures how far DisTrO stays behind AdamW at the same number of tokens.
//
//	go run ./proof/bench/parity plan proof/bench/parity/plan.txt    # every run whose log is missing
//	go run ./proof/bench/parity table                         # Markdown, from the logs
//
// A run trains one small Llama on text and writes one log, a JSON object a line. With
// DisTrO it holds as many trainers as a run would have clients: each has its own momentum,
// trains its own share of every batch and writes its result with the real codec; every
// replica applies all results, and at the end all replicas must hold the same bits.
//
// With --one-replica members share a replica, and some may attack, with or without audits: how
// much that costs.
//
// The learning rate and everything else is chosen by the loss on one part of the held-out
// text (validation); the comparison itself looks at the other part (test) only.
package main
