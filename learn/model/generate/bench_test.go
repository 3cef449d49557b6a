package generate_test

import (
	"testing"

	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/model/generate"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

const benchConfig = `{"architectures":["LlamaForCausalLM"],"vocab_size":2048,"hidden_size":256,"intermediate_size":688,
"num_hidden_layers":4,"num_attention_heads":8,"num_key_value_heads":4,"max_position_embeddings":512}`

// BenchmarkText writes 250 tokens after a prompt of 250, with the cache and without.
func BenchmarkText(b *testing.B) {
	e := torchtest.Engine(b)
	tensors, err := model.Init([]byte(benchConfig), 1)
	if err != nil {
		b.Fatal(err)
	}
	m, err := model.New(b.Context(), e, []byte(benchConfig), model.Options{}, tensors)
	if err != nil {
		b.Fatal(err)
	}
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
				torchtest.Do(b, e, false, func(s *torch.Scope) error {
					m.Forward(s, s.Zeros(torch.I64, 1, int64(len(prompt))+n))
					return nil
				})
			}
		}
	})
}
