//go:build cgo && linux

package cuda

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/distro/cuda/cudatest"
	"github.com/psyche-go/psyche/learn/localsteps"
)

// full makes each allocation of the emulated driver fail from now on.
func full(t *testing.T) { t.Setenv(cudatest.EnvFailure, "cuMemAlloc 2") }

// TestStepsAllocateNothing makes each kind of call on a device without free memory. NewModel reserved the
// memory that a step needs.
func TestStepsAllocateNothing(t *testing.T) {
	for _, layouts := range [][]distro.Layout{shapes(t, true)[:8], {layout(t, 64, 3)}, {layout(t, 1, 600)}, {layout(t, 64, 1<<16)}} {
		r := newModelRig(t, emulated(t), encodeParams.TopK, layouts)
		_, delta := r.upload(t, r.values(1, 1))
		_, left := r.upload(t, r.values(2, 1))
		_, grad := r.upload(t, r.values(3, 1))
		full(t)
		taken, err := r.model.Encode(delta, left, grad, encodeParams, 0)
		if err != nil {
			t.Fatal(err)
		}
		p := localsteps.EncodeParams{Reach: 1, TopK: encodeParams.TopK, LevelBits: 4}
		if _, err := r.model.EncodeLevels(delta, left, grad, p); err != nil {
			t.Error(err)
		}
		if _, err := r.model.Leaves(left, taken); err != nil {
			t.Error(err)
		}
		if err := r.model.AddBack(left, taken); err != nil {
			t.Error(err)
		}
		if err := r.model.AdamW(left, grad, delta, make([]Tensor, len(layouts)), AdamWParams{Step: 1}); err != nil {
			t.Error(err)
		}
		if err := r.model.Far(left, grad, delta, 0.5); err != nil {
			t.Error(err)
		}
		if _, err := r.model.Squares(grad); err != nil {
			t.Error(err)
		}
		t.Setenv(cudatest.EnvFailure, "")
	}
}

// TestResultsOnAFullDevice applies results that need more memory than the device has free. Then they are
// applied in smaller parts, with the same bits. If they do not fit, nothing changes.
func TestResultsOnAFullDevice(t *testing.T) {
	layouts := []distro.Layout{layout(t, 8, 32, 32), layout(t, 8, 8, 8), layout(t, 8, 32, 32), layout(t, 8, 40, 32)}
	r, free := newModelRig(t, emulated(t), 8, layouts), newModelRig(t, emulated(t), 8, layouts)
	var results [][]codec.TensorResult
	for n := range 40 {
		var result []codec.TensorResult
		for _, l := range layouts {
			c := l.Codec(1).NewResult()
			for i := range c.Counts {
				c.Counts[i], c.Values[i], c.Indices[i] = 1, float32(n-20)+0.5, uint16(n%8)
			}
			result = append(result, c)
		}
		results = append(results, result)
	}
	p := distro.ApplyParams{LR: 0.1, WeightFactor: 0.9}
	start := r.values(1, 1)
	there, at := r.upload(t, start)
	freeThere, freeAt := free.upload(t, start)
	reserved := r.device.staging.size
	t.Setenv(cudatest.EnvLargest, strconv.Itoa(reserved))
	for _, many := range [][][]codec.TensorResult{results[:17], results[:18], slices.Repeat(results, 2)} {
		whole, largest := 0, sizeOf(many, 0)
		for i := range layouts {
			whole += sizeOf(many, i)
		}
		err := r.model.Apply(many, at, p)
		t.Logf("%d bytes for all tensors, %d for the largest, %d reserved: %v", whole, largest, reserved, err)
		if fits := largest < reserved; fits != (err == nil) || !fits && !errors.Is(err, ErrMemory) || whole < reserved {
			t.Errorf("error %v", err)
		}
		if err == nil {
			if err := free.model.Apply(many, freeAt, p); err != nil {
				t.Fatal(err)
			}
		}
		for i := range there {
			sameBits(t, "weights", values(t, there[i]), values(t, freeThere[i]))
		}
	}
	if size := r.device.staging.size; size != reserved {
		t.Errorf("%d bytes reserved, want %d", size, reserved)
	}
}

// TestMemoryFailsInTheMiddle checks the error of an allocation that fails after some tensors have changed.
func TestMemoryFailsInTheMiddle(t *testing.T) {
	r := newModelRig(t, emulated(t), 1, []distro.Layout{layout(t, 8, 8, 8), layout(t, 8, 8, 8), layout(t, 8, 8, 8)})
	calls := 0
	err := r.model.eachPart(nil, func(p part) error {
		if calls++; calls == 1 || p == (part{first: 1, end: 2}) || p.end-p.first > 1 {
			return ErrMemory
		}
		return nil
	})
	if err == nil || errors.Is(err, ErrMemory) || !strings.Contains(err.Error(), "other tensors") {
		t.Errorf("error = %v", err)
	}
}
