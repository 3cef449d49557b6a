package main

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/face/metrics"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/config"
)

// TestHeldOutLossIsTheEvaluatedLoss checks that a member of a run measures the loss that evaluate prints.
func TestHeldOutLossIsTheEvaluatedLoss(t *testing.T) {
	requireTorch(t)
	dir, tokens := toy(t)
	run := runOf(t, dir, tokens, 16)
	snapshot, err := checkpoint.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	flags := sourceFlags{AllowLocalPaths: true, HeldOut: tokens, HeldOutSequences: 9}
	of := training(flags)
	of.board, of.command.MicroBatchSize, of.command.Threads = metrics.New(), 2, 1
	factory := of.factory(nil)
	defer func() {
		if err := factory.Close(); err != nil {
			t.Error(err)
		}
	}()
	trainer, err := factory.Build(t.Context(), snapshot, env.Definition{Model: run})
	if err != nil {
		t.Fatal(err)
	}
	measurer := trainer.(env.Measurer)
	if sequences, n := measurer.HeldOut(); sequences != 9 || n < 9*16 {
		t.Errorf("%d sequences with %d tokens, want 9 with 16 each", sequences, n)
	}
	got, err := measurer.Measure(t.Context())
	if want := loss(t, dir, tokens); err != nil || math.Abs(got-want) > 1e-4 { // micro-batches differ
		t.Errorf("a member measures %v (%v), evaluate prints %v", got, err, want)
	}
	damaged := flags
	damaged.HeldOut = filepath.Join(dir, "missing")
	without := training(damaged).factory(nil)
	_, err = without.Build(t.Context(), snapshot, env.Definition{Model: run})
	golden.Message(t, "missing", err)
	if err := without.Close(); err != nil {
		t.Error(err)
	}
}

// TestHeldOutDataOfARun checks where a member looks for held-out data.
func TestHeldOutDataOfARun(t *testing.T) {
	data, other := t.TempDir(), t.TempDir()
	if err := os.Mkdir(filepath.Join(data, "heldout"), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		flags sourceFlags
		of    string // folder of the run's data
		want  string
	}{
		"the run's folder":              {sourceFlags{AllowLocalPaths: true}, data, filepath.Join(data, "heldout")},
		"the run's folder, not allowed": {sourceFlags{}, data, ""},
		"the user's folder":             {sourceFlags{DataPath: data}, other, filepath.Join(data, "heldout")},
		"a folder without it":           {sourceFlags{DataPath: other, AllowLocalPaths: true}, data, ""},
		"the flag":                      {sourceFlags{HeldOut: "held.ds", DataPath: data}, data, "held.ds"},
	} {
		t.Run(name, func(t *testing.T) {
			run, err := config.DecodeModel(runOf(t, "model", test.of, 16).Definition)
			if err != nil {
				t.Fatal(err)
			}
			if got := test.flags.heldOutData(run); got != test.want {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
