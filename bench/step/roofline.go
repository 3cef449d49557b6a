package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/psyche-go/psyche/torch"
)

// stepFLOPs counts the floating-point operations of the matrix products of a step, per
// token: 2 a weight and token forward and 4 backward, and of the scores and of what they mix
// the half that a causal mask leaves. What is computed twice is counted once.
func stepFLOPs(path string, tokens int) (float64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	var c struct {
		Vocabulary   float64 `json:"vocab_size"`
		Hidden       float64 `json:"hidden_size"`
		Intermediate float64 `json:"intermediate_size"`
		Layers       float64 `json:"num_hidden_layers"`
		Heads        float64 `json:"num_attention_heads"`
		KVHeads      float64 `json:"num_key_value_heads"`
		Width        float64 `json:"head_dim"`
	}
	if err := json.Unmarshal(text, &c); err != nil {
		return 0, fmt.Errorf("%s: %w", path, err)
	}
	layer := 2*c.Hidden*c.Width*(c.Heads+c.KVHeads) + 3*c.Hidden*c.Intermediate
	scores := float64(tokens) * c.Heads * c.Width
	return 6*(c.Layers*layer+c.Vocabulary*c.Hidden) + 6*c.Layers*scores, nil
}

// productFLOPs measures what the machine gives: floating-point operations a second of the
// product of two matrices of 2048 × 2048, the best of some.
func productFLOPs(ctx context.Context, engine *torch.Engine, dtype torch.DType) (float64, error) {
	const n = 2048
	best := time.Duration(1<<63 - 1)
	err := engine.Do(ctx, false, func(s *torch.Scope) error {
		numbers := make([]float32, n*n)
		for i := range numbers {
			numbers[i] = float32(i%17) - 8
		}
		a := s.FromFloat32s(numbers, n, n).To(dtype)
		for range 6 {
			begin := time.Now()
			a.Matmul(a)
			best = min(best, time.Since(begin))
		}
		return nil
	})
	return 2 * n * n * n / best.Seconds(), err
}
