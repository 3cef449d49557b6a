//go:build cgo && linux

package cuda

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/distro/cuda/cudatest"
	"github.com/psyche-go/psyche/learn/distro/distrotest"
	"github.com/psyche-go/psyche/learn/localsteps"
)

// modelRig is a model of many tensors on a device, and the same numbers on the host.
type modelRig struct {
	device  *Device
	model   *Model
	kernel  *distro.Kernel
	layouts []distro.Layout
}

// shapes returns the layouts of distrotest, without the large ones at the end if small is set.
func shapes(t *testing.T, small bool) (layouts []distro.Layout) {
	t.Helper()
	for _, c := range distrotest.Shapes {
		layouts = append(layouts, layout(t, c.Chunk, c.Shape...))
	}
	if small {
		layouts = layouts[:23]
	}
	return layouts
}

func layout(t *testing.T, chunk int, shape ...int64) distro.Layout {
	t.Helper()
	l, err := distro.NewLayout(shape, chunk)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func newModelRig(t *testing.T, d *Device, topK int, layouts []distro.Layout) *modelRig {
	t.Helper()
	r := &modelRig{device: d, kernel: kernel(t, ""), layouts: layouts}
	model, err := d.NewModel(r.layouts, topK)
	if err != nil {
		t.Fatal(err)
	}
	r.model = model
	t.Cleanup(func() {
		if err := model.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// values returns numbers for all tensors. One tensor contains only zeros, and a third of each tensor is quiet.
func (r *modelRig) values(seed uint64, scale float64) (values [][]float32) {
	for i, l := range r.layouts {
		v := normal(seed+uint64(i), l.Elements(), scale)
		if i == 7 {
			clear(v)
		}
		for j := range v[:len(v)/3] {
			v[j] *= 1e-5
		}
		values = append(values, v)
	}
	return values
}

func (r *modelRig) upload(t *testing.T, values [][]float32) (buffers []*deviceBuffer, tensors []Tensor) {
	t.Helper()
	for _, v := range values {
		b := buffer(t, r.device, v)
		buffers, tensors = append(buffers, b), append(tensors, b.Tensor())
	}
	return buffers, tensors
}

func (r *modelRig) same(t *testing.T, subject string, got []*deviceBuffer, want [][]float32) {
	t.Helper()
	for i := range want {
		sameBits(t, subject, values(t, got[i]), want[i])
	}
}

func clones(values [][]float32) (copies [][]float32) {
	for _, v := range values {
		copies = append(copies, slices.Clone(v))
	}
	return copies
}

var encodeParams = distro.EncodeParams{Decay: 0.9, LR: 0.013, TopK: 9}

func testModel(t *testing.T, d *Device) {
	const least = 1e-6
	r, p := newModelRig(t, d, encodeParams.TopK, shapes(t, false)), encodeParams
	delta, grad := r.values(1, 1), r.values(2, 1)
	left, weights := clones(delta), r.values(3, 0.02)
	deltas, deltaAt := r.upload(t, delta)
	_, gradAt := r.upload(t, grad)
	lefts, leftAt := r.upload(t, left)
	onDevice, weightsAt := r.upload(t, weights)
	var want []codec.TensorResult
	for i, l := range r.layouts {
		reference := p
		reference.Floor = max(least, r.kernel.Floor(delta[i], grad[i], p))
		result, err := r.kernel.EncodeTo(l, delta[i], left[i], grad[i], reference)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, result)
	}
	got, err := r.model.Encode(deltaAt, leftAt, gradAt, p, least)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if !slices.Equal(got[i].Counts, want[i].Counts) || !slices.Equal(got[i].Indices, want[i].Indices) {
			t.Fatalf("tensor %d: other coefficients were selected", i)
		}
		sameBits(t, "coefficients", got[i].Values, want[i].Values)
	}
	r.same(t, "old momentum", deltas, delta)
	r.same(t, "new momentum", lefts, left)
	r.checkLeaves(t, leftAt, left, want)
	if _, err := r.model.Encode(deltaAt, deltaAt, gradAt, p, least); err != nil {
		t.Fatal(err)
	}
	r.same(t, "new momentum in place", deltas, left)

	signs := make([]codec.TensorResult, len(want))
	for i, result := range want {
		signs[i] = codec.TensorResult{Counts: result.Counts, Indices: result.Indices, Values: slices.Clone(result.Values)}
		distrotest.ToSigns(signs[i])
	}
	results, apply := [][]codec.TensorResult{want, signs, signs}, distro.ApplyParams{LR: 0.013, WeightFactor: 0.999, Votes: distro.Votes{5, 16, 1}}
	for i, l := range r.layouts {
		if err := r.kernel.DecodeApply(l, []codec.TensorResult{want[i], signs[i], signs[i]}, weights[i], apply); err != nil {
			t.Fatal(err)
		}
		if err := r.kernel.AddBack(l, left[i], want[i]); err != nil {
			t.Fatal(err)
		}
	}
	r.model.staging = 40_000 // divides the model
	if n := len(r.model.parts(results)); n < 3 || n >= len(r.layouts) {
		t.Errorf("%d parts of %d tensors", n, len(r.layouts))
	}
	if err := r.model.Apply(results, weightsAt, apply); err != nil {
		t.Fatal(err)
	}
	r.same(t, "weights", onDevice, weights)
	if err := r.model.AddBack(leftAt, want); err != nil {
		t.Fatal(err)
	}
	r.same(t, "momentum with the result again", lefts, left)
}

// checkLeaves compares the leaves and all chunks of the momenta.
func (r *modelRig) checkLeaves(t *testing.T, delta []Tensor, onHost [][]float32, taken []codec.TensorResult) {
	t.Helper()
	leaves, err := r.model.Leaves(delta, taken)
	if err != nil {
		t.Fatal(err)
	}
	var want [][32]byte
	var numbers []uint32
	for i, l := range r.layouts {
		_, ofTensor, err := r.kernel.Leaves(l, onHost[i], taken[i])
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, ofTensor...)
	}
	if !slices.Equal(leaves, want) {
		t.Error("the leaves differ")
	}
	for number := range want {
		if number%7 == 0 {
			numbers = append(numbers, uint32(number))
		}
	}
	chunks, err := r.model.Chunks(delta, numbers)
	if err != nil {
		t.Fatal(err)
	}
	for i, number := range numbers {
		tensor := r.model.tensor(int(number))
		within := int(number) - int(r.model.chunks.firsts[tensor])
		sameBits(t, "chunk", chunks[i], r.layouts[tensor].Chunk(onHost[tensor], within, nil))
	}
	last := len(r.layouts) - 1
	within := r.layouts[last].Chunks() - 1
	one, err := r.model.Chunk(delta[last], last, within)
	if err != nil {
		t.Fatal(err)
	}
	sameBits(t, "one chunk", one, r.layouts[last].Chunk(onHost[last], within, nil))
}

// TestModelHasTheBitsOfTheReference computes on tensors of all shapes at once.
func TestModelHasTheBitsOfTheReference(t *testing.T) { testModel(t, emulated(t)) }

func TestModelOnADevice(t *testing.T) { testModel(t, real(t)) }

func TestNormsOnTheDevice(t *testing.T) {
	r := newModelRig(t, emulated(t), 1, shapes(t, true))
	numbers := r.values(5, 3)
	_, at := r.upload(t, numbers)
	near := func(subject string, got, want float64) {
		t.Helper()
		if !(math.Abs(got-want) <= 1e-12*want) {
			t.Errorf("%s: %v, want %v", subject, got, want)
		}
	}
	squares, err := r.model.Squares(at)
	if err != nil {
		t.Fatal(err)
	}
	near("norm", Norm(squares), distro.Norm(1, numbers))
	for _, bad := range []float32{float32(math.NaN()), float32(math.Inf(-1)), math.MaxFloat32} {
		last := numbers[len(numbers)-1]
		last[len(last)-1] = bad
		at[len(at)-1] = buffer(t, r.device, last).Tensor()
		squares, err := r.model.Squares(at)
		if err != nil {
			t.Fatal(err)
		}
		norm := Norm(squares)
		if finite := !math.IsNaN(norm) && !math.IsInf(norm, 0); finite != (bad == math.MaxFloat32) {
			t.Errorf("norm with %v: %v", bad, norm)
		}
	}
}

// TestModelThatIsNotFinite checks that the error names the tensor and the chunk, and that the chunk
// is not written.
func TestModelThatIsNotFinite(t *testing.T) {
	r := newModelRig(t, emulated(t), 4, shapes(t, true))
	delta, grad := r.values(1, 1), r.values(2, 1)
	const tensor, chunk = 8, 3
	at := 0
	for l := r.layouts[tensor]; ; at++ { // the first element of the chunk
		if marked := make([]float32, l.Elements()); at < len(marked) {
			if marked[at] = 1; l.Chunk(marked, chunk, nil)[0] == 1 {
				break
			}
		}
	}
	grad[tensor][at] = float32(math.Inf(1))
	_, deltaAt := r.upload(t, delta)
	_, gradAt := r.upload(t, grad)
	lefts, leftAt := r.upload(t, delta)
	_, err := r.model.Encode(deltaAt, leftAt, gradAt, distro.EncodeParams{Decay: 0.9, LR: 1, TopK: 4}, audit.Least)
	if !errors.Is(err, distro.ErrNotFinite) {
		t.Fatalf("error %v, want ErrNotFinite", err)
	}
	got := r.layouts[tensor].Chunk(values(t, lefts[tensor]), chunk, nil)
	sameBits(t, "refused chunk", got, r.layouts[tensor].Chunk(delta[tensor], chunk, nil))
}

// TestTraffic checks that the number of launches and copies does not depend on the number of tensors,
// and bounds the bytes that a call moves.
func TestTraffic(t *testing.T) {
	r := newModelRig(t, emulated(t), 8, shapes(t, false))
	p := encodeParams
	p.TopK = 8
	_, delta := r.upload(t, r.values(1, 1))
	_, grad := r.upload(t, r.values(2, 1))
	var results []codec.TensorResult
	limit := int64(64*r.model.chunks.count() + 64<<10)
	levels := localsteps.EncodeParams{Reach: 1, TopK: 8, LevelBits: 2, Decay: 0.9}
	for _, call := range []struct {
		name             string
		do               func() error
		launches, copies int64
	}{
		{"norm", func() error { _, err := r.model.Squares(grad); return err }, 1, 2},
		{"encode", func() (err error) { results, err = r.model.Encode(delta, delta, grad, p, 0); return err }, 3, 2},
		{"encode levels", func() error { _, err := r.model.EncodeLevels(delta, delta, grad, levels); return err }, 5, 3},
		{"leaves", func() error { _, err := r.model.Leaves(delta, results); return err }, 1, 2},
		{"add back", func() error { return r.model.AddBack(delta, results) }, 1, 1},
	} {
		before := r.device.Traffic()
		if err := call.do(); err != nil {
			t.Fatal(err)
		}
		after := r.device.Traffic()
		if n := after.Launches - before.Launches; n != call.launches {
			t.Errorf("%s: %d launches, want %d", call.name, n, call.launches)
		}
		if n := after.Copies - before.Copies; n != call.copies {
			t.Errorf("%s: %d copies, want %d", call.name, n, call.copies)
		}
		if n := after.Up + after.Down - before.Up - before.Down; n > limit {
			t.Errorf("%s: %d bytes for %d chunks", call.name, n, r.model.chunks.count())
		}
	}
}

// TestFailuresOfModels makes each call of the driver fail in each method. Afterwards the model works,
// and no memory remains on the device.
func TestFailuresOfModels(t *testing.T) {
	d := emulated(t)
	r := newModelRig(t, d, encodeParams.TopK, shapes(t, true)[:4])
	_, delta := r.upload(t, r.values(1, 1))
	_, grad := r.upload(t, r.values(2, 1))
	_, weights := r.upload(t, r.values(3, 1))
	_, means := r.upload(t, r.values(4, 0))
	results, err := r.model.Encode(delta, delta, grad, encodeParams, 0)
	if err != nil {
		t.Fatal(err)
	}
	const up, down, launch, wait = "cuMemcpyHtoD", "cuMemcpyDtoH", "cuLaunchKernel", "cuCtxSynchronize"
	for name, method := range map[string]struct {
		call  func() error
		fails []string
	}{
		"new": {func() error {
			m, err := d.NewModel(r.layouts, 1)
			if err == nil {
				err = m.Close()
			}
			return err
		}, []string{"cuMemAlloc", up}},
		"norm":   {func() error { _, err := r.model.Squares(grad); return err }, []string{up, launch, wait, down}},
		"encode": {func() error { _, err := r.model.Encode(delta, delta, grad, encodeParams, 0); return err }, []string{up, launch, wait, down}},
		"encode levels": {func() error {
			p := localsteps.EncodeParams{Reach: 1, TopK: encodeParams.TopK, LevelBits: 2}
			_, err := r.model.EncodeLevels(delta, delta, grad, p)
			return err
		}, []string{up, launch, wait, down}},
		"leaves":   {func() error { _, err := r.model.Leaves(delta, results); return err }, []string{up, launch, wait, down}},
		"chunk":    {func() error { _, err := r.model.Chunk(delta[3], 3, 1); return err }, []string{up, launch, wait, down}},
		"apply":    {func() error { return r.model.Apply(nil, weights, distro.ApplyParams{WeightFactor: 1}) }, []string{up, launch, wait}},
		"add back": {func() error { return r.model.AddBack(delta, results) }, []string{up, launch, wait}},
		"adamw":    {func() error { return r.model.AdamW(weights, grad, means, means, AdamWParams{Step: 1}) }, []string{up, launch, wait}},
		"far":      {func() error { return r.model.Far(delta, weights, nil, 0) }, []string{up, launch, wait}},
	} {
		for _, failing := range method.fails {
			t.Setenv(cudatest.EnvFailure, failing+" 2")
			if err := method.call(); err == nil || !strings.Contains(err.Error(), failing+": CUDA_ERROR_OUT_OF_MEMORY") {
				t.Errorf("%s: %s: error %v", name, failing, err)
			}
		}
		t.Setenv(cudatest.EnvFailure, "")
		if err := method.call(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestModelsThatDoNotFit(t *testing.T) {
	d := emulated(t)
	r := newModelRig(t, d, 3, shapes(t, true)[:4])
	_, delta := r.upload(t, r.values(1, 1))
	p := distro.EncodeParams{Decay: 1, LR: 1, TopK: 3}
	few, other := delta[:3], slices.Clone(delta)
	other[2].Elements--
	otherTopK := p
	otherTopK.TopK = 4
	notFinite := p
	notFinite.LR = float32(math.Inf(1))
	encode := func(delta, left, grad []Tensor, p distro.EncodeParams) func() error {
		return func() error { _, err := r.model.Encode(delta, left, grad, p, 0); return err }
	}
	for name, call := range map[string]func() error{
		"no tensors":      func() error { _, err := d.NewModel(nil, 1); return err },
		"top-k 0":         func() error { _, err := d.NewModel(r.layouts, 0); return err },
		"few momenta":     encode(few, delta, delta, p),
		"few new momenta": encode(delta, few, delta, p),
		"other gradients": encode(delta, delta, other, p),
		"another top-k":   encode(delta, delta, delta, otherTopK),
		"few to measure":  func() error { _, err := r.model.Squares(few); return err },
		"few to hash":     func() error { _, err := r.model.Leaves(few, nil); return err },
		"no result":       func() error { _, err := r.model.Leaves(delta, nil); return err },
		"empty result":    func() error { return r.model.AddBack(delta, make([]codec.TensorResult, 4)) },
		"part of a result": func() error {
			return r.model.Apply([][]codec.TensorResult{{}}, delta, distro.ApplyParams{WeightFactor: 1})
		},
		"no such tensor":  func() error { _, err := r.model.Chunk(delta[0], 4, 0); return err },
		"no such chunk":   func() error { _, err := r.model.Chunk(delta[0], 0, 1); return err },
		"another tensor":  func() error { _, err := r.model.Chunk(delta[0], 3, 0); return err },
		"chunk too large": func() error { _, err := r.model.Chunks(delta, []uint32{1 << 30}); return err },
	} {
		if err := call(); !errors.Is(err, distro.ErrInput) {
			t.Errorf("%s: error %v, want ErrInput", name, err)
		}
	}
	if err := encode(delta, delta, delta, notFinite)(); !errors.Is(err, distro.ErrNotFinite) {
		t.Errorf("infinite rate: error %v, want ErrNotFinite", err)
	}
	for range 2 {
		if err := r.model.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := r.model.Squares(delta); !errors.Is(err, errClosed) {
		t.Errorf("closed model: error %v, want errClosed", err)
	}
}
