package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/node/env"
)

// trainer is a trainer that waits for each sequence.
type trainer struct {
	env.Trainer
	each  string        // path of the file with the time
	begun atomic.Uint64 // bits of Begun
}

// Begun implements env.Progressive.
func (t *trainer) Begun() float64 { return math.Float64frombits(t.begun.Load()) }

// Train implements env.Trainer.
func (t *trainer) Train(ctx context.Context, step uint32, batch data.Batch, begun func(context.Context) error) ([]byte, float64, error) {
	for i := range batch.Sequences {
		t.begun.Store(math.Float64bits(float64(i+1) / float64(len(batch.Sequences))))
		each, err := t.time()
		if err != nil {
			return nil, 0, err
		}
		if err := pause.For(ctx, each); err != nil {
			return nil, 0, err
		}
	}
	return t.Trainer.Train(ctx, step, batch, begun)
}

// time reads the time for a sequence.
func (t *trainer) time() (time.Duration, error) {
	text, err := os.ReadFile(t.each)
	if err != nil {
		return 0, err
	}
	each, err := time.ParseDuration(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", t.each, err)
	}
	return each, nil
}
