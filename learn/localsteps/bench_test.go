package localsteps

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/psyche-go/psyche/core/codec"
)

func BenchmarkEncodeAndApply(b *testing.B) {
	l := layoutOf(b, 32, 1024, 4096)
	random := rand.New(rand.NewPCG(1, 2))
	fresh := make([]float32, l.Elements())
	for i := range fresh {
		fresh[i] = float32(random.NormFloat64())
	}
	sums := make([]float32, len(fresh))
	k := kernelOf(b, "")
	for _, topK := range []int{16, 80, 128} {
		p := EncodeParams{Reach: 3, TopK: topK, LevelBits: 2}
		result, err := Encode(k, l, sums, fresh, p)
		if err != nil {
			b.Fatal(err)
		}
		results := []codec.TensorResult{result, result, result, result}
		b.Run(fmt.Sprintf("encode/k=%d", topK), func(b *testing.B) {
			b.SetBytes(int64(len(sums)))
			for b.Loop() {
				if _, err := Encode(k, l, sums, fresh, p); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run(fmt.Sprintf("apply/k=%d", topK), func(b *testing.B) {
			b.SetBytes(int64(len(sums)))
			for b.Loop() {
				if err := Apply(k, l, results, sums, ApplyParams{Reach: 3, LevelBits: 2, Rate: 1}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
