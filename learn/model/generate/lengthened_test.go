package generate_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// TestLongTextInPieces checks texts that are computed differently because they are long, or because
// they become long. They must equal the texts without a cache, even if the limit is after the first
// piece of the prompt.
func TestLongTextInPieces(t *testing.T) {
	e := torchtest.Engine(t)
	m := readWith(t, e, "llama/testdata/phi3_longrope", model.Options{},
		`"max_position_embeddings": 128`, `"max_position_embeddings": 900`, `"original_max_position_embeddings": 16`, `"original_max_position_embeddings": 300`)
	o := greedy
	o.MaxTokens = 6
	for _, length := range []int{255, 256, 257, 290, 294, 297, 299, 300, 301, 310, 512, 520, 768, 894} {
		t.Run(fmt.Sprint(length), func(t *testing.T) {
			prompt := make([]int32, length)
			for i := range prompt {
				prompt[i] = int32(i * i % 23)
			}
			text := slices.Clone(prompt)
			for i, id := range write(t, m, prompt, o) {
				logits := forward(t, m, text)
				if best := slices.Index(logits, slices.Max(logits)); int32(best) != id {
					t.Fatalf("token %d is %d, without a cache %d", i, id, best)
				}
				text = append(text, id)
			}
			if len(text) != length+o.MaxTokens {
				t.Errorf("%d tokens", len(text)-length)
			}
		})
	}
}
