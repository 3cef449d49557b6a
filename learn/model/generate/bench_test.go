package generate_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/model/generate"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

const benchConfig = `{"architectures":["LlamaForCausalLM"],"vocab_size":2048,"hidden_size":256,"intermediate_size":688,
"num_hidden_layers":4,"num_attention_heads":8,"num_key_value_heads":4,"max_position_embeddings":512}`

func benchModel(b *testing.B) model.Model {
	b.Helper()
	tensors, err := model.Init([]byte(benchConfig), 1)
	if err != nil {
		b.Fatal(err)
	}
	m, err := model.New(b.Context(), torchtest.Engine(b), []byte(benchConfig), model.Options{}, tensors)
	if err != nil {
		b.Fatal(err)
	}
	return m
}

// BenchmarkText generates 250 tokens after a prompt of 250 tokens, with and without the cache.
func BenchmarkText(b *testing.B) {
	m := benchModel(b)
	prompt := make([]int32, 250)
	o := greedy
	o.MaxTokens = 250
	b.Run("cache", func(b *testing.B) {
		for b.Loop() {
			if err := generate.Tokens(b.Context(), m, prompt, o, func(int32) error { return nil }); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("whole", func(b *testing.B) {
		for b.Loop() {
			for n := range int64(o.MaxTokens) {
				torchtest.Do(b, m.Engine(), false, func(s *torch.Scope) error {
					m.Forward(s, s.Zeros(torch.I64, 1, int64(len(prompt))+n))
					return nil
				})
			}
		}
	})
}

// BenchmarkTogether generates texts of 100 tokens together, and reports the speedup over generating
// them one after the other.
func BenchmarkTogether(b *testing.B) {
	m := benchModel(b)
	o := greedy
	o.MaxTokens = 100
	one := func(g *generate.Together) {
		if err := g.Tokens(b.Context(), []int32{1, 2, 3}, o, func(int32) error { return nil }); err != nil {
			b.Error(err)
		}
	}
	for _, texts := range []int{2, 4, 8} {
		b.Run(fmt.Sprint(texts), func(b *testing.B) {
			var inTurn, together time.Duration
			for b.Loop() {
				began := time.Now()
				for range texts {
					one(generate.NewTogether(m))
				}
				inTurn += time.Since(began)
				began = time.Now()
				g := generate.NewTogether(m)
				var wait sync.WaitGroup
				for range texts {
					wait.Go(func() { one(g) })
				}
				wait.Wait()
				together += time.Since(began)
			}
			b.ReportMetric(float64(inTurn)/float64(together), "times-in-turn")
		})
	}
}
