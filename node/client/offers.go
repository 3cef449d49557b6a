package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/node/core"
)

// rehearsalTime is the time that the last training of a rehearsal takes at least, if the batch suffices.
const rehearsalTime = 500 * time.Millisecond

// errRehearsed ends a training of a rehearsal.
var errRehearsed = errors.New("rehearsed")

// rehearse measures the speed of training on sequences of a batch. It begins with one sequence, and doubles
// the number until a training takes rehearsalTime. Each training ends before its result, so the model does not change.
// With local steps, the running means of the optimizer keep the gradients, as after any training that fails.
func (e *engine) rehearse(step uint32, batch data.Batch, take func(core.Measured)) {
	trainer, tasks := e.trainer, e.tasks
	start(e, core.Rehearse{}, func(ctx context.Context) core.Measured {
		for count := 1; ; count *= 2 {
			part := firstOf(batch, count)
			started := tasks.Now()
			took := time.Duration(0)
			_, _, err := trainer.Train(ctx, step, part, func(context.Context) error {
				took = tasks.Now().Sub(started)
				return errRehearsed
			})
			if !errors.Is(err, errRehearsed) {
				return core.Measured{}
			}
			if took >= rehearsalTime || count >= len(batch.Sequences) {
				return core.Measured{Underway: core.Underway{Step: step, Tokens: tokensOf(part), Begun: 1, Took: took}, Rehearsal: true}
			}
		}
	}, take, nil)
}

// blankBatch returns the batch of a rehearsal for a member that does not train in a round. It is as large as an equal
// share. All of its tokens are 0, because their values hardly change the time that a training takes.
func blankBatch(round *coordinator.Round, seqLen uint32) *data.Batch {
	count := max(1, int(round.BatchSize)/len(round.Members))
	return &data.Batch{
		ID:        assign.BatchID{Start: round.Position, End: round.Position + uint64(count)},
		Sequences: slices.Repeat([][]int32{make([]int32, seqLen+1)}, count),
	}
}

// firstOf returns the first sequences of a batch.
func firstOf(batch data.Batch, count int) data.Batch {
	count = min(count, len(batch.Sequences))
	part := data.Batch{
		ID:        assign.BatchID{Start: batch.ID.Start, End: batch.ID.Start + uint64(count)},
		Sequences: batch.Sequences[:count],
	}
	if len(batch.Labels) >= count {
		part.Labels = batch.Labels[:count]
	}
	if len(batch.Positions) >= count {
		part.Positions = batch.Positions[:count]
	}
	return part
}

// tokensOf returns the number of tokens that a batch predicts.
func tokensOf(batch data.Batch) int {
	tokens := 0
	for _, sequence := range batch.Sequences {
		tokens += max(len(sequence)-1, 0)
	}
	return tokens
}
