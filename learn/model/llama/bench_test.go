package llama_test

import (
	"os"
	"testing"

	"github.com/psyche-go/psyche/learn/model/llama"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// BenchmarkTrainingStep measures forward and backward of the quickstart's model on one thread.
func BenchmarkTrainingStep(b *testing.B) {
	e := torchtest.Engine(b)
	data, err := os.ReadFile("../../../configs/quickstart/model.json")
	if err != nil {
		b.Fatal(err)
	}
	config, err := llama.ParseConfig(data)
	if err != nil {
		b.Fatal(err)
	}
	m, err := llama.New(b.Context(), e, config, llama.Options{}, llama.Init(config, 1, func(int64) {}))
	if err != nil {
		b.Fatal(err)
	}
	const batch, tokens = 8, 256
	text := make([]int32, batch*tokens)
	for i := range text {
		text[i] = int32(i * i % config.VocabSize)
	}
	for b.Loop() {
		torchtest.Do(b, e, true, func(s *torch.Scope) error {
			ids := s.FromInt32s(text, batch, tokens)
			m.Loss(s, ids, ids).Backward()
			for _, p := range m.Parameters() {
				p.Tensor.ClearGrad()
			}
			return nil
		})
	}
	b.ReportMetric(float64(b.N*batch*tokens)/b.Elapsed().Seconds(), "tokens/s")
}
