package distro

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
)

// envISA is the environment variable that forces an instruction set, for tests and for debugging.
// All instruction sets give the same bits.
const envISA = "PSYCHE_DISTRO_ISA"

var (
	// ErrNotFinite means that a momentum, gradient or value is infinite or not a number.
	ErrNotFinite = errors.New("not a finite number")
	// ErrInput means that arguments do not match each other.
	ErrInput = errors.New("invalid input")
)

// Options are the settings of a Kernel. They do not change its results.
type Options struct {
	// Threads is the number of goroutines that share a call, at least 1 (the default).
	Threads int
	// ISA is "go", "baseline", "avx2" or "avx512". Empty means $PSYCHE_DISTRO_ISA or, if that is
	// also empty, the best ISA that this build and processor support.
	ISA string
}

// Kernel encodes and applies tensors. Its methods may be called concurrently for different tensors.
type Kernel struct {
	threads int
	isa     isa
}

// isa is one implementation of the kernels.
type isa struct {
	name    string
	new     func(Layout) chunkKernel
	squares func(values []float32) float64 // see Norm
	digest  func(chunk []float32) [32]byte // audit.Digest
}

// chunkKernel works on ranges of chunks of one layout. It owns its scratch memory, so only one
// goroutine may use it at a time.
type chunkKernel interface {
	// encode writes the new momentum to left, which may be delta. It returns the first chunk with a
	// coefficient that is not finite, or −1. It does not write that chunk and later ones.
	encode(first, last int, delta, left, grad []float32, p EncodeParams, k int, out slots) int
	// apply applies the entries of the chunks first … last−1.
	apply(first, last int, in entries, weights []float32, p ApplyParams)
	// add adds the inverse DCT of the entries to delta.
	add(first, last int, in entries, delta []float32)
}

// slots hold k entries for each chunk of a tensor.
type slots struct {
	counts, indices []uint16
	values          []float32
}

// entries are coefficients of consecutive chunks. The entries of the i-th chunk are at offsets[i]
// to offsets[i+1], in ascending order of index, and move its weights by rates[i].
type entries struct {
	offsets []int32
	rates   []float32
	indices []uint16
	values  []float32
}

// NewKernel selects the instruction set. It returns an error if the instruction set is unknown or
// unavailable.
func NewKernel(o Options) (*Kernel, error) {
	name := o.ISA
	name = cmp.Or(name, os.Getenv(envISA))
	available := availableISAs()
	if name == "" {
		return &Kernel{threads: max(o.Threads, 1), isa: available[len(available)-1]}, nil
	}
	var names []string
	for _, set := range available {
		if set.name == name {
			return &Kernel{threads: max(o.Threads, 1), isa: set}, nil
		}
		names = append(names, set.name)
	}
	return nil, fmt.Errorf("%s %q: %w: this build and processor have %s", envISA, name, ErrInput, strings.Join(names, ", "))
}

// availableISAs returns the instruction sets that this build and processor support, slowest first.
func availableISAs() []isa {
	return append([]isa{{name: "go", new: newReference, squares: squares, digest: audit.Digest}}, nativeISAs()...)
}

// ISA returns the name of the instruction set in use.
func (k *Kernel) ISA() string { return k.isa.name }

// EncodeParams are the scalar parameters of Encode.
type EncodeParams struct {
	// Decay is the momentum's decay β, applied before the gradient is added.
	Decay float32
	// LR is the learning rate that scales the gradient.
	LR float32
	// TopK is the maximum number of coefficients sent for each chunk, limited to the chunk's size.
	// At least 1.
	TopK int
	// Floor is the minimum magnitude of the largest coefficient of a chunk. If all coefficients of a
	// chunk are smaller, Encode sends and removes none of them. 0 means no minimum. See Kernel.Floor.
	Floor float32
}

// Encode updates the momentum, δ ← Decay·δ + LR·g, and sets elements below 2⁻¹⁰⁰ to zero. It
// selects the TopK largest coefficients of each chunk's DCT by magnitude. Among equal ones it
// selects the lowest indices, and it never selects zeros. It removes them from the momentum, δ ← δ
// − DCT⁻¹(result). In a chunk below Floor it selects none. delta and grad contain the tensor's
// elements in row-major order; grad is not changed. The result contains the coefficients
// themselves; a 1-bit message sends their signs.
//
// ErrNotFinite means that δ or g contains an infinity or NaN, or that a coefficient overflowed. The
// chunk named in the error is unchanged, and other chunks may have been updated. Call Finite on
// gradients first if δ must not change in this case.
func (k *Kernel) Encode(l Layout, delta, grad []float32, p EncodeParams) (codec.TensorResult, error) {
	return k.EncodeTo(l, delta, delta, grad, p)
}

// EncodeTo is Encode for callers that still need the old momentum: it reads delta and writes the new
// momentum to left, all elements of it unless there is an error.
func (k *Kernel) EncodeTo(l Layout, delta, left, grad []float32, p EncodeParams) (codec.TensorResult, error) {
	if err := CheckEncode(l, len(delta), len(grad), p); err != nil {
		return codec.TensorResult{}, err
	}
	if len(left) != len(delta) {
		return codec.TensorResult{}, fmt.Errorf("encode: %w: room for %d momenta of %d", ErrInput, len(left), len(delta))
	}
	result := l.Codec(p.TopK).NewResult()
	out := slots{counts: result.Counts, indices: result.Indices, values: result.Values}
	stride := l.Codec(p.TopK).K
	var bad atomic.Int64
	bad.Store(math.MaxInt64)
	k.eachRange(l, func(kernel chunkKernel, first, last int) {
		if chunk := kernel.encode(first, last, delta, left, grad, p, stride, out); chunk >= 0 {
			for old := bad.Load(); int64(chunk) < old && !bad.CompareAndSwap(old, int64(chunk)); old = bad.Load() {
			}
		}
	})
	if chunk := bad.Load(); chunk != math.MaxInt64 {
		return codec.TensorResult{}, fmt.Errorf("encode: chunk %d: momentum or gradient: %w", chunk, ErrNotFinite)
	}
	return result, nil
}

// quiet is a fraction of the root mean square of a tensor's momentum. A chunk whose momentum is
// smaller carries no information.
const quiet = 1.0 / (1 << 10)

// Floor returns a floor for Encode with the same arguments: 2⁻¹⁰ of the root mean square of the
// whole tensor's momentum after adding the gradient. Smaller remainders of old gradients are not
// worth sending. The floor is the sender's choice and need not be precise: for a large tensor,
// Floor samples an eighth of the elements.
func (k *Kernel) Floor(delta, grad []float32, p EncodeParams) float32 {
	if len(delta) == 0 || len(delta) != len(grad) {
		return 0
	}
	const piece, step, whole = 512, 8 * 512, 1 << 15
	sum, count := 0.0, len(delta)
	if len(delta) <= whole {
		sum = momenta(delta, grad, p)
	} else {
		sums := make([]float64, (len(delta)+step-1)/step)
		k.eachBlock(len(sums), func(i int) {
			at := i * step
			end := min(at+piece, len(delta))
			sums[i] = momenta(delta[at:end], grad[at:end], p)
		})
		sum = added(sums)
		count = (len(sums)-1)*piece + min(piece, len(delta)-(len(sums)-1)*step)
	}
	floor := float32(quiet * math.Sqrt(sum/float64(count)))
	if !allFinite([]float32{floor}) {
		return 0 // Encode returns the error
	}
	return floor
}

// momenta returns the sum of the squares of decay·δ + lr·g, in double precision over groups of four
// elements.
func momenta(delta, grad []float32, p EncodeParams) float64 {
	var even, odd float64
	for ; len(delta) >= 8 && len(grad) >= 8; delta, grad = delta[8:], grad[8:] {
		even += float64(fourSquares((*[4]float32)(delta), (*[4]float32)(grad), p.Decay, p.LR))
		odd += float64(fourSquares((*[4]float32)(delta[4:]), (*[4]float32)(grad[4:]), p.Decay, p.LR))
	}
	for i := range delta {
		x := float64(p.Decay*delta[i] + p.LR*grad[i])
		even += x * x
	}
	return even + odd
}

func fourSquares(delta, grad *[4]float32, decay, lr float32) float32 {
	a, b := decay*delta[0]+lr*grad[0], decay*delta[1]+lr*grad[1]
	c, d := decay*delta[2]+lr*grad[2], decay*delta[3]+lr*grad[3]
	return a*a + b*b + (c*c + d*d)
}

// Threads returns the number of goroutines that share a call.
func (k *Kernel) Threads() int { return k.threads }

// Norm returns the L2 norm of all slices together, in double precision. It is finite exactly if
// every element is finite. The bits depend neither on the number of threads nor on the instruction
// set.
func Norm(threads int, slices [][]float32) float64 {
	sets := availableISAs()
	return (&Kernel{threads: threads, isa: sets[len(sets)-1]}).norm(slices)
}

func (k *Kernel) norm(slices [][]float32) float64 {
	const block = 1 << 16
	var blocks [][]float32
	for _, values := range slices {
		for ; len(values) > block; values = values[block:] {
			blocks = append(blocks, values[:block])
		}
		blocks = append(blocks, values)
	}
	sums := make([]float64, len(blocks))
	k.eachBlock(len(blocks), func(i int) { sums[i] = k.isa.squares(blocks[i]) })
	return math.Sqrt(added(sums))
}

// squares adds the squares of values. The square of element i goes to sum i modulo the number of
// sums.
func squares(values []float32) float64 {
	var sums [padding]float64
	for ; len(values) >= padding; values = values[padding:] {
		for j, v := range values[:padding] {
			sums[j] += float64(v) * float64(v)
		}
	}
	for j, v := range values {
		sums[j] += float64(v) * float64(v)
	}
	return added(sums[:])
}

// added returns the sum of numbers, added in order.
func added(numbers []float64) (sum float64) {
	for _, n := range numbers {
		sum += n
	}
	return sum
}

// ApplyParams are the parameters of DecodeApply.
type ApplyParams struct {
	// LR is the size of each step in a chunk in which all results sent something, at least 0.
	LR float32
	// WeightFactor multiplies each weight before its step: 1 − LR·weightDecay, or 1 for no decay,
	// which skips the multiplication. More than 0, at most 1.
	WeightFactor float32
	Votes        Votes // of the results
}

// DecodeApply averages each coefficient over the results that contain it, by their votes, transforms
// back and moves every weight: w ← w·WeightFactor − rate·sign(u), with both operations rounded
// separately. If u is zero, the weight does not move. The rate of a chunk is the rate for the votes of
// the results that sent something in it. Results of unit values (1-bit) give the same bits in any
// order. Other results are added in the given order, so callers must agree on the order. Weights
// decay even without results.
//
// DecodeApply checks every result before it changes any weight.
func (k *Kernel) DecodeApply(l Layout, results []codec.TensorResult, weights []float32, p ApplyParams) error {
	if err := CheckApply(l, results, len(weights), p); err != nil {
		return err
	}
	k.eachMergedRange(l, results, p, func(kernel chunkKernel, first, last int, in entries) {
		kernel.apply(first, last, in, weights, p)
	})
	return nil
}

// AddBack adds coefficients back to the momentum, δ ← δ + DCT⁻¹(r). It is for the coefficients that
// Encode removed for a result that was not counted.
func (k *Kernel) AddBack(l Layout, delta []float32, r codec.TensorResult) error {
	if err := CheckAddBack(l, len(delta), r); err != nil {
		return err
	}
	k.eachMergedRange(l, []codec.TensorResult{r}, ApplyParams{}, func(kernel chunkKernel, first, last int, in entries) {
		kernel.add(first, last, in, delta)
	})
	return nil
}

// checkResult returns an error if a result does not fit the layout. The kernels rely on this check.
func checkResult(l Layout, r codec.TensorResult) error {
	chunks := l.Chunks()
	k := len(r.Indices) / chunks
	layout := codec.TensorLayout{Chunks: chunks, ChunkSize: l.ChunkSize(), K: k}
	if err := layout.Check(r); err != nil {
		return fmt.Errorf("%w: %w", ErrInput, err)
	}
	return nil
}

// piece is the number of chunks that a goroutine takes at a time. It is large enough to keep the
// overhead low, and small enough that merged entries stay in the cache and threads finish together.
const piece = 64

// eachBlock calls f with 0 … n−1.
func (k *Kernel) eachBlock(n int, f func(i int)) {
	k.share(n, func(next func() (int, bool)) {
		for i, ok := next(); ok; i, ok = next() {
			f(i)
		}
	})
}

// eachRange calls f for ranges that together cover every chunk once.
func (k *Kernel) eachRange(l Layout, f func(kernel chunkKernel, first, last int)) {
	chunks := l.Chunks()
	k.share((chunks+piece-1)/piece, func(next func() (int, bool)) {
		kernel := k.isa.new(l)
		for i, ok := next(); ok; i, ok = next() {
			f(kernel, i*piece, min((i+1)*piece, chunks))
		}
	})
}

func (k *Kernel) eachMergedRange(l Layout, results []codec.TensorResult, p ApplyParams, f func(kernel chunkKernel, first, last int, in entries)) {
	chunks := l.Chunks()
	k.share((chunks+piece-1)/piece, func(next func() (int, bool)) {
		kernel := k.isa.new(l)
		merge := newMerger(l, results, p)
		for i, ok := next(); ok; i, ok = next() {
			first, last := i*piece, min((i+1)*piece, chunks)
			f(kernel, first, last, merge.chunks(first, last))
		}
	})
}

// share runs work on the kernel's goroutines. next returns 0 … n−1, each once.
func (k *Kernel) share(n int, work func(next func() (int, bool))) {
	var taken atomic.Int64
	next := func() (int, bool) {
		i := int(taken.Add(1)) - 1
		return i, i < n
	}
	var others sync.WaitGroup
	for range min(k.threads, n) - 1 {
		others.Go(func() { work(next) })
	}
	work(next)
	others.Wait()
}
