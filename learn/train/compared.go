package train

import (
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/torch"
)

// errBits means that the kernels of a device computed other bits than the CPU.
var errBits = errors.New("the device computes other bits than the CPU")

// comparisons counts the steps of a device, and selects steps in which its results are compared with
// the CPU's: the first steps, which detect a device that always computes other bits, and then every
// compareEvery-th. Members also compare the digests of their models.
type comparisons uint64

const (
	firstCompared = 3
	compareEvery  = 256
)

// next counts a step and reports whether it is compared.
func (c *comparisons) next() bool {
	*c++
	return *c <= firstCompared || *c%compareEvery == 0
}

// sample is a copy of one tensor's momentum and gradient before a step.
type sample struct {
	tensor         int
	from, gradient []float32
}

// maxSampled is the number of elements in the samples of a step. One tensor may be larger.
const maxSampled = 1 << 24

// samplesOf copies some tensors, others in each compared step.
func samplesOf(step comparisons, layouts []distro.Layout, from, gradients []*torch.Tensor) (samples []sample) {
	elements := 0
	for n := range layouts {
		i := (int(step) + n) % len(layouts)
		if elements += layouts[i].Elements(); elements > maxSampled && n > 0 {
			break
		}
		samples = append(samples, sample{i, from[i].CopyFloat32s(), gradients[i].CopyFloat32s()})
	}
	return samples
}

// firstChunk returns the number of the tensor's first chunk among the chunks of all tensors.
func (s sample) firstChunk(layouts []distro.Layout) (chunk int) {
	for _, l := range layouts[:s.tensor] {
		chunk += l.Chunks()
	}
	return chunk
}

// compare returns an error unless the CPU takes the same coefficients, and computes the same momentum and leaves. It
// changes the sample.
func (s sample) compare(kernel *distro.Kernel, l distro.Layout, take taking, taken codec.TensorResult, momentum *torch.Tensor, leaves [][32]byte) error {
	here := &buffers{kernel: kernel, layouts: []distro.Layout{l}, now: [][]float32{s.from}}
	all, err := take(here, vectors{here: [][]float32{s.gradient}})
	if err != nil {
		return err
	}
	want := all[0]
	for c := range l.Chunks() {
		was, now := distro.TakenOf(want, c, l.Chunks()), distro.TakenOf(taken, c, l.Chunks())
		if !slices.Equal(was.Indices, now.Indices) || !slices.EqualFunc(was.Values, now.Values, equalBits) ||
			want.Units != nil && want.Units[c] != taken.Units[c] {
			return fmt.Errorf("%w: coefficients of chunk %d of tensor %d", errBits, c, s.tensor)
		}
	}
	if !slices.EqualFunc(s.from, copied([]*torch.Tensor{momentum})[0], equalBits) {
		return fmt.Errorf("%w: momentum of tensor %d", errBits, s.tensor)
	}
	_, hashes, err := kernel.Leaves(l, s.from, hashed(all)[0])
	if err == nil && !slices.Equal(hashes, leaves) {
		err = fmt.Errorf("%w: hashes of tensor %d", errBits, s.tensor)
	}
	return err
}

// hashed returns results whose levels count as values, because hash trees contain no units. A comparison of hashes
// needs no more.
func hashed(results []codec.TensorResult) []codec.TensorResult {
	values := slices.Clone(results)
	for i := range values {
		values[i].Units = nil
	}
	return values
}

func equalBits(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
