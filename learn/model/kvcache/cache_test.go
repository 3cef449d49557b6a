package kvcache_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/learn/model/kvcache"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// However tokens come in, the cache holds all of them in their order, in every layer.
func TestCacheHoldsAll(t *testing.T) {
	e := torchtest.Engine(t)
	rapid.Check(t, func(r *rapid.T) {
		pieces := rapid.SliceOfN(rapid.IntRange(1, 90), 1, 6).Draw(r, "pieces")
		before := torch.LiveTensors()
		err := e.Do(t.Context(), false, func(s *torch.Scope) error {
			cache, want := kvcache.New(2, 1000), []float32{}
			for _, n := range pieces {
				added := make([]float32, n)
				for i := range added {
					added[i] = float32(len(want) + i)
				}
				want = append(want, added...)
				for layer := range 2 {
					// What was appended but not counted is overwritten.
					cache.Append(s, layer, s.Zeros(torch.F32, 1, int64(n), 1), s.Zeros(torch.F32, 1, int64(n)))
					got := cache.Append(s, layer, s.FromFloat32s(added, 1, int64(n), 1), s.FromFloat32s(added, 1, int64(n)))
					for _, t := range got {
						if !slices.Equal(t.Contiguous().CopyFloat32s(), want) {
							r.Fatalf("layer %d of %v holds %v", layer, pieces, t.Contiguous().CopyFloat32s())
						}
					}
				}
				if cache.Advance(int64(n)); cache.Len() != int64(len(want)) {
					r.Fatalf("%d tokens, want %d", cache.Len(), len(want))
				}
			}
			cache.Free()
			return nil
		})
		if err != nil || torch.LiveTensors() != before {
			r.Fatalf("error %v, %d tensors are left", err, torch.LiveTensors()-before)
		}
	})
}

func TestCacheIsBounded(t *testing.T) {
	e := torchtest.Engine(t)
	err := e.Do(t.Context(), false, func(s *torch.Scope) error {
		kvcache.New(1, 8).Append(s, 0, s.Zeros(torch.F32, 1, 9, 1))
		return nil
	})
	golden.Message(t, "9 tokens", err)
}
