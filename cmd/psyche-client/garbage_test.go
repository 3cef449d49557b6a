package main

import (
	"context"
	"os"
	"runtime/debug"
	"testing"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/required"
)

// TestLittleGarbageBesideLargeModels checks that the garbage collector's percentage follows the
// size of the trained model, unless the user sets it.
func TestLittleGarbageBesideLargeModels(t *testing.T) {
	before := debug.SetGCPercent(100)
	defer debug.SetGCPercent(before)
	if _, given := os.LookupEnv("GOGC"); !given {
		leaveLittle(required.MaxCopied + 1)
		if got := debug.SetGCPercent(100); got != leastPercent {
			t.Errorf("with a model of more than 1 GiB: %d %%, want %d", got, leastPercent)
		}
	}
	build := leavingLittle(func(context.Context, checkpoint.Snapshot, env.Definition) (env.Trainer, error) { return nil, nil })
	for name, test := range map[string]struct {
		weights int
		given   bool
		want    int
	}{
		"small":                    {largeModel - 4, false, 100},
		"large":                    {largeModel, false, garbagePercent},
		"large, and the user says": {largeModel, true, 100},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("GOGC", "100")
			if !test.given {
				if err := os.Unsetenv("GOGC"); err != nil { // until the test ends
					t.Fatal(err)
				}
			}
			s := checkpoint.Snapshot{Tensors: []safetensors.Tensor{{Data: make([]byte, test.weights)}}}
			if _, err := build(t.Context(), s, env.Definition{}); err != nil {
				t.Fatal(err)
			}
			if got := debug.SetGCPercent(100); got != test.want {
				t.Errorf("%d %%, want %d", got, test.want)
			}
		})
	}
}
