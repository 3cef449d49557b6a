package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/psyche-go/psyche/learn/torch"
)

// stepFLOPs counts the floating-point operations per token in the matrix products of a step: 2 per
// weight in the forward pass and 4 in the backward pass. Of the attention scores and the weighted
// sums it counts the half that a causal mask leaves. Recomputed products count once.
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

// productFLOPs measures the machine's floating-point operations per second for the product of two
// square matrices, 2048 wide on a CPU and 8192 on a device. A device answers when all earlier work
// is done. The result is the best of several measurements.
func productFLOPs(ctx context.Context, engine *torch.Engine, device torch.Device, dtype torch.DType) (float64, error) {
	n := int64(2048)
	if device != torch.CPU {
		n = 8192
	}
	best := time.Duration(1<<63 - 1)
	err := engine.Do(ctx, false, func(s *torch.Scope) error {
		numbers := make([]float32, n*n)
		for i := range numbers {
			numbers[i] = float32(i%17) - 8
		}
		a := s.FromFloat32s(numbers, n, n).To(dtype)
		for range 6 {
			begin := time.Now()
			a.Matmul(a).Narrow(0, 0, 1).Narrow(1, 0, 1).Item()
			best = min(best, time.Since(begin))
		}
		return nil
	})
	return 2 * float64(n*n*n) / best.Seconds(), err
}
