package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/node/env"
)

// trainer is a trainer that waits for each sequence.
type trainer struct {
	env.Trainer
	each string // path of the file with the time

	mu              sync.Mutex
	complete, begun float64
}

// Progress implements env.Progressive.
func (t *trainer) Progress() (complete, begun float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.complete, t.begun
}

func (t *trainer) advance(complete, begun float64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.complete, t.begun = complete, begun
}

// Train implements env.Trainer.
func (t *trainer) Train(ctx context.Context, step uint32, batch data.Batch, begun func(context.Context) error) ([]byte, float64, error) {
	for i := range batch.Sequences {
		t.advance(float64(i)/float64(len(batch.Sequences)), float64(i+1)/float64(len(batch.Sequences)))
		each, err := t.time()
		if err != nil {
			return nil, 0, err
		}
		if err := pause.For(ctx, each); err != nil {
			return nil, 0, err
		}
	}
	t.advance(1, 1)
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
