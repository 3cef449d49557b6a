package main

import (
	"context"
	"os"
	"runtime/debug"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/required"
)

const (
	// largeModel is the size of weights, in bytes, from which on copies of models are most of what is collected.
	largeModel = 64 << 20
	// garbagePercent is how much garbage beside a large model is left before it is collected, in percent of what lives.
	// By Go's default it may be as much as that: copies of models that nobody needs any more, for minutes. Numbers have
	// no pointers to follow, so that to collect them costs little: a run of one member with 20 M parameters, in epochs of
	// four rounds of 64 tokens, took 16.3 s of the processor in place of 15.9, and as long.
	garbagePercent = 25
	// leastPercent is how much is left beside a model of which no copies are kept (required.MaxCopied).
	leastPercent = 10
)

// leaveLittle has little garbage left beside weights of a size, unless the environment says how much.
func leaveLittle(weights int64) {
	percent := garbagePercent
	if weights > required.MaxCopied {
		percent = leastPercent
	}
	if _, given := os.LookupEnv("GOGC"); !given && weights >= largeModel {
		debug.SetGCPercent(percent)
	}
}

// leavingLittle does so for each trainer that is built.
func leavingLittle(build func(context.Context, checkpoint.Snapshot, env.Definition) (env.Trainer, error)) func(context.Context, checkpoint.Snapshot, env.Definition) (env.Trainer, error) {
	return func(ctx context.Context, s checkpoint.Snapshot, d env.Definition) (env.Trainer, error) {
		var weights int64
		for _, t := range s.Tensors {
			weights += int64(len(t.Data))
		}
		leaveLittle(weights)
		return build(ctx, s, d)
	}
}
