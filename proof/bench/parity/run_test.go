package main

import "testing"

// TestRoundsOfLocalSteps checks that a round uses the sequences of all its steps, so that a run
// sees as many tokens as a run of AdamW.
func TestRoundsOfLocalSteps(t *testing.T) {
	adamw := runCommand{Batch: 3, SeqLen: 10, Tokens: 1000, Optimizer: "adamw"}
	local := adamw
	local.Optimizer, local.InnerSteps, local.TopK, local.ValueBits, local.OuterLR, local.ErrorDecay = "local", 5, 8, 2, 1, 1
	if adamw.sequences() != 3 || adamw.steps() != 34 || local.sequences() != 15 || local.steps() != 7 {
		t.Errorf("%d steps of %d sequences, %d rounds of %d", adamw.steps(), adamw.sequences(), local.steps(), local.sequences())
	}
	if got, want := local.describe(), "lr 0, ., H 5, k 8, 2 bits, outer 1, error decay 1"; got != want {
		t.Errorf("described as %q, want %q", got, want)
	}
}
