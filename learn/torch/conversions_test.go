package torch_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// TestKeepConversions checks that kept conversions follow the weights.
func TestKeepConversions(t *testing.T) {
	torchtest.Do(t, torchtest.Engine(t), false, func(s *torch.Scope) error {
		in := randoms(s, rand.New(rand.NewPCG(5, 6)), []int64{3, 8}, []int64{8}, []int64{2, 12, 8}, []int64{8, 12})
		for i := range in {
			in[i] = in[i].Detach()
		}
		gate, up := in[2].Narrow(0, 0, 1).Reshape(12, 8), in[2].Narrow(0, 1, 1).Reshape(12, 8)
		x := in[0].To(torch.BF16)
		compute := func() []float32 {
			return x.FeedForwardBlock(in[1], gate, up, in[3], 1e-5, false).CopyFloat32s()
		}
		conversions := torch.KeepConversions(gate, up, in[3])
		first := compute()
		if again := compute(); !slices.Equal(again, first) {
			t.Errorf("the second result is %v, want %v", again, first)
		}

		up.CopyFrom(gate)
		changed := compute()
		values := in[3].Float32s()
		for i := range values {
			values[i] = -values[i]
		}
		stale := compute()
		conversions.Changed()
		current, down := compute(), s.Copy(in[3])
		moments := [2]*torch.Tensor{s.Zeros(torch.F32, 8, 12), s.Zeros(torch.F32, 8, 12)}
		torch.AdamW{Beta1: 0.9, Beta2: 0.9, Epsilon: 1e-8}.Step(in[3], s.Full(torch.F32, 1, 8, 12), moments[0], moments[1], 0.5, 1)
		stepped := compute()
		conversions.Drop()
		if want := compute(); !slices.Equal(stepped, want) || slices.Equal(stepped, current) {
			t.Errorf("the result after a step of AdamW is %v, want %v", stepped, want)
		}
		in[3].CopyFrom(down)
		if want := compute(); !slices.Equal(current, want) {
			t.Errorf("the result after Changed is %v, want %v", current, want)
		}
		for i := range values {
			values[i] = -values[i]
		}
		if want := compute(); !slices.Equal(changed, want) || !slices.Equal(stale, want) {
			t.Errorf("the results are %v and %v, want %v", changed, stale, want)
		}
		return nil
	})
}
