package localsteps

import (
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
	p := EncodeParams{Reach: 3, TopK: 16, LevelBits: 2}
	k := kernelOf(b, "")
	var results []codec.TensorResult
	b.Run("encode", func(b *testing.B) {
		b.SetBytes(int64(len(sums)))
		for b.Loop() {
			result, err := Encode(k, l, sums, fresh, p)
			if err != nil {
				b.Fatal(err)
			}
			results = []codec.TensorResult{result, result, result, result}
		}
	})
	b.Run("apply", func(b *testing.B) {
		b.SetBytes(int64(len(sums)))
		for b.Loop() {
			if err := Apply(k, l, results, sums, ApplyParams{Reach: 3, LevelBits: 2, Rate: 1}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
