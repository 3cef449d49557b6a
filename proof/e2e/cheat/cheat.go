// Package cheat implements a trainer that sends false results, for tests only. It wraps a real
// trainer, and behaves correctly in all other respects.
//
//	trainer := &cheat.Trainer{Honest: honest, ID: key.ID(), Attack: cheat.TurnedSign}
package cheat

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/node/env"
)

// Attack is a kind of false result.
type Attack int

// The attacks.
const (
	None         Attack = iota
	TurnedSign          // sends the negative of its result
	HalfBatch           // computes the gradient of half of its batch
	AnotherBatch        // computes the gradient of foreign tokens
	OldBatch            // computes the gradient of its first batch
	Noise               // sends random signs
	Copy                // sends a different trainer's result of the previous step
	NegatedCopy         // sends the negative of a Copy
	OneStep             // trains its middle sequence on foreign tokens; with local steps this is one step
)

// attackNames are the names of attacks in command lines.
var attackNames = [...]string{
	None:         "none",
	TurnedSign:   "negated",
	HalfBatch:    "half-batch",
	AnotherBatch: "another-batch",
	OldBatch:     "old-batch",
	Noise:        "noise",
	Copy:         "copy",
	NegatedCopy:  "negated-copy",
	OneStep:      "one-step",
}

// String returns the attack's name.
func (a Attack) String() string {
	if a < 0 || int(a) >= len(attackNames) {
		return "Attack?"
	}
	return attackNames[a]
}

// ParseAttack returns the attack with a name.
func ParseAttack(name string) (Attack, error) {
	i := slices.Index(attackNames[:], name)
	if i < 0 {
		return 0, fmt.Errorf("attack %q: want one of %s", name, strings.Join(attackNames[:], ", "))
	}
	return Attack(i), nil
}

// Honest is the wrapped trainer: a train.Trainer.
type Honest interface {
	env.Trainer
	env.Auditor
	env.Speculator
}

// Trainer is an env.Auditor that cheats.
type Trainer struct {
	Honest
	ID     [32]byte // its key
	Attack Attack
	Pace   time.Duration // extra time per step, without computation
	Levels int           // bits of a value of local steps; 0: results are DisTrO's signs

	mu     sync.Mutex
	first  [][]int32            // of the first batch
	others []codec.TensorResult // newest result of a different trainer
}

var _ env.Auditor = (*Trainer)(nil)

// Train implements env.Trainer.
func (t *Trainer) Train(ctx context.Context, step uint32, batch data.Batch, begun func(context.Context) error) ([]byte, float64, error) {
	select {
	case <-time.After(t.Pace):
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	payload, loss, err := t.Honest.Train(ctx, step, t.batch(batch), begun)
	if err == nil {
		payload, err = t.result(step, payload, batch.Hash())
	}
	return payload, loss, err
}

// batch returns the batch to train instead of the given one.
func (t *Trainer) batch(batch data.Batch) data.Batch {
	if t.first == nil {
		t.first = batch.Sequences
	}
	changed := data.Batch{ID: batch.ID}
	for i, sequence := range batch.Sequences {
		switch t.Attack {
		case HalfBatch:
			sequence = batch.Sequences[i/2]
		case AnotherBatch:
			sequence = slices.Clone(sequence)
			slices.Reverse(sequence)
		case OldBatch:
			sequence = t.first[i%len(t.first)]
		case OneStep:
			if i == len(batch.Sequences)/2 {
				sequence = slices.Clone(sequence)
				slices.Reverse(sequence)
			}
		}
		changed.Sequences = append(changed.Sequences, sequence)
	}
	return changed
}

// result returns the result to send instead of the given one. Its header is correct and names the
// batch's tokens, independently of the trained tokens.
func (t *Trainer) result(step uint32, payload []byte, tokens [32]byte) ([]byte, error) {
	header, own, err := t.decode(payload)
	if err != nil {
		return nil, err
	}
	if t.Attack == None {
		return payload, nil
	}
	header.Batch = tokens
	sent := own
	t.mu.Lock()
	others := t.others
	t.mu.Unlock()
	switch {
	case t.Attack == TurnedSign:
		sent = signed(own, func(int, int) bool { return true })
	case t.Attack == Noise:
		sent = signed(own, func(tensor, i int) bool { return (uint32(tensor*31+i)*2654435761+step)>>7&1 == 1 })
	case t.Attack == Copy && others != nil:
		sent = others
	case t.Attack == NegatedCopy && others != nil:
		sent = signed(others, func(int, int) bool { return true })
	}
	if t.Levels > 0 {
		return codec.EncodeLevels(header, t.layouts(), t.Levels, sent)
	}
	return codec.Encode(header, t.layouts(), true, sent)
}

func (t *Trainer) layouts() []codec.TensorLayout {
	shapes := t.Shapes()
	layouts := make([]codec.TensorLayout, len(shapes))
	for i, s := range shapes {
		layouts[i] = codec.TensorLayout{Chunks: s.Chunks, ChunkSize: s.Rows * s.Cols, K: s.K}
	}
	return layouts
}

// decode decodes a result: levels for local steps.
func (t *Trainer) decode(payload []byte) (codec.Header, []codec.TensorResult, error) {
	if t.Levels > 0 {
		return codec.DecodeLevels(payload, t.layouts(), t.Levels)
	}
	return t.Decode(payload)
}

// signed returns a result with some signs inverted.
func signed(results []codec.TensorResult, turned func(tensor, i int) bool) []codec.TensorResult {
	changed := make([]codec.TensorResult, len(results))
	for i, r := range results {
		r.Values = slices.Clone(r.Values)
		for j := range r.Values {
			if turned(i, j) {
				r.Values[j] = -r.Values[j]
			}
			if r.Values[j] == 0 {
				r.Values[j] = 0 // not −0: the entry is empty
			}
		}
		changed[i] = r
	}
	return changed
}

// Verify implements env.Trainer. It also stores results of other trainers.
func (t *Trainer) Verify(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte) error {
	if err := t.Honest.Verify(payload, step, batch, trainer); err != nil {
		return err
	}
	_, results, err := t.decode(payload)
	if err != nil {
		return fmt.Errorf("read a result again: %w", err)
	}
	if trainer == t.ID {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.others = results
	return nil
}
