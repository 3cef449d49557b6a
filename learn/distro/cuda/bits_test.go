//go:build cgo && linux

package cuda

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/distro/distrotest"
)

func normal(seed uint64, n int, scale float64) []float32 {
	random := rand.New(rand.NewPCG(seed, 0))
	x := make([]float32, n)
	for i := range x {
		x[i] = float32(scale * random.NormFloat64())
		if random.IntN(50) == 0 {
			x[i] *= 1e-40 // subnormal, or zero
		}
	}
	return x
}

// sameBits fails at the first element whose bits differ. So it also distinguishes 0 and −0.
func sameBits(t rapid.TB, subject string, got, want []float32) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d elements, want %d", subject, len(got), len(want))
	}
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d: %v (%#x), want %v (%#x)", subject, i,
				got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
		}
	}
}

// mean merges results as the definition requires: it adds them in order, times their votes, and divides
// once. It omits a mean of zero, which adds nothing.
func mean(l distro.Layout, results []codec.TensorResult, votes distro.Votes) codec.TensorResult {
	places := l.ChunkSize()
	merged := l.Codec(places).NewResult()
	for c := range l.Chunks() {
		sums, senders := make([]float32, places), make([]float32, places)
		for n, r := range results {
			at := c * (len(r.Indices) / l.Chunks())
			weight := float32(votes.Of(n)) / assign.FullVote
			for i, index := range r.Indices[at:][:r.Counts[c]] {
				sums[index] += float32(r.Values[at+i] * weight)
				senders[index] += weight
			}
		}
		at := c * places
		for index, sum := range sums {
			if sum != 0 {
				merged.Counts[c]++
				merged.Indices[at], merged.Values[at] = uint16(index), sum/senders[index]
				at++
			}
		}
	}
	return merged
}

// compareMeans compares the values whose signs DecodeApply uses, because a sign hides most
// differences in the last place.
func compareMeans(t rapid.TB, d *Device, l distro.Layout, results []codec.TensorResult, votes distro.Votes) {
	t.Helper()
	want := make([]float32, l.Elements())
	b, err := d.newBuffer(want)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := d.addMeans(l, b.Tensor(), results, votes); err != nil {
		t.Fatal(err)
	}
	k, err := distro.NewKernel(distro.Options{ISA: "go"})
	if err != nil {
		t.Fatal(err)
	}
	if err := k.AddBack(l, want, mean(l, results, votes)); err != nil {
		t.Fatal(err)
	}
	got, err := b.Values()
	if err != nil {
		t.Fatal(err)
	}
	sameBits(t, "inverse transform of the means", got, want)
}

// compare runs rounds of three trainers on the device and with a kernel.
func compare(t *testing.T, d *Device, k *distro.Kernel, l distro.Layout, topK int) {
	t.Helper()
	n := l.Elements()
	weights := normal(99, n, 0.02)
	onDevice := buffer(t, d, weights)
	for round := range 2 {
		var results []codec.TensorResult
		for i := range 3 {
			seed := uint64(10*round + i)
			delta, grad := normal(seed+100, n, math.Pow(10, float64(i)-2)), normal(seed+200, n, 1)
			if i == 2 {
				clear(delta[:n/2]) // also whole chunks of zeros
				clear(grad[:n/2])
			}
			deltaBuffer, gradBuffer := buffer(t, d, delta), buffer(t, d, grad)
			p := distro.EncodeParams{Decay: 0.9, LR: 0.013, TopK: topK + i}
			if i == 1 {
				p.Floor = 0.5 // some chunks are below it
			}
			reference := p
			reference.Floor = max(p.Floor, k.Floor(delta, grad, p))
			want, err := k.Encode(l, delta, grad, reference)
			if err != nil {
				t.Fatal(err)
			}
			got, err := d.encode(l, deltaBuffer.Tensor(), gradBuffer.Tensor(), p)
			if err != nil {
				t.Fatal(err)
			}
			subject := fmt.Sprintf("round %d, trainer %d", round, i)
			if !slices.Equal(got.Counts, want.Counts) || !slices.Equal(got.Indices, want.Indices) {
				t.Fatalf("%s: other coefficients were selected", subject)
			}
			sameBits(t, subject+": coefficients", got.Values, want.Values)
			sameBits(t, subject+": momentum", values(t, deltaBuffer), delta)
			if err := k.AddBack(l, delta, want); err != nil {
				t.Fatal(err)
			}
			if err := d.addBack(l, deltaBuffer.Tensor(), want); err != nil {
				t.Fatal(err)
			}
			sameBits(t, subject+": momentum with the result again", values(t, deltaBuffer), delta)
			results = append(results, want)
		}
		// Values in one round, signs in the next.
		if round == 1 {
			for _, r := range results {
				distrotest.ToSigns(r)
			}
		}
		compareMeans(t, d, l, results, nil)
		p := distro.ApplyParams{LR: 0.013, WeightFactor: 1 - 0.013*0.1*float32(round)}
		if err := k.DecodeApply(l, results, weights, p); err != nil {
			t.Fatal(err)
		}
		if err := d.apply(l, results, onDevice.Tensor(), p); err != nil {
			t.Fatal(err)
		}
		sameBits(t, fmt.Sprintf("round %d: weights", round), values(t, onDevice), weights)
	}
}

// compareShapes compares each shape with the Go reference, or with the kernel that distro selects on
// this machine.
func compareShapes(t *testing.T, d *Device) {
	for i, c := range distrotest.Shapes {
		l, err := distro.NewLayout(c.Shape, c.Chunk)
		if err != nil {
			t.Fatal(err)
		}
		isa := []string{"go", ""}[i%2]
		t.Run(fmt.Sprintf("%v by %d top %d like %q", c.Shape, c.Chunk, c.TopK, isa), func(t *testing.T) {
			compare(t, d, kernel(t, isa), l, c.TopK)
		})
	}
}

// TestKernelsHaveTheBitsOfTheReference runs the source of the kernels on this CPU.
func TestKernelsHaveTheBitsOfTheReference(t *testing.T) { compareShapes(t, emulated(t)) }

// TestADeviceHasTheBitsOfTheReference runs the kernels on a device. One tensor has more chunks than
// a launch has blocks on the device.
func TestADeviceHasTheBitsOfTheReference(t *testing.T) {
	d := real(t)
	compareShapes(t, d)
	l, err := distro.NewLayout([]int64{2048, 2048}, 8)
	if err != nil {
		t.Fatal(err)
	}
	compare(t, d, kernel(t, ""), l, 3)
}

// drawResult returns a random result with up to places entries per chunk: any values, signs, few
// entries, or none.
func drawResult(rt *rapid.T, l distro.Layout, name string) codec.TensorResult {
	places := rapid.IntRange(1, min(l.ChunkSize(), 300)).Draw(rt, name+" places")
	kind := rapid.SampledFrom([]string{"values", "signs", "wide", "none"}).Draw(rt, name+" kind")
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, name+" seed"), 1))
	r := l.Codec(places).NewResult()
	if kind == "none" {
		return r
	}
	for c := range l.Chunks() {
		count := random.IntN(places + 1)
		indices := random.Perm(l.ChunkSize())[:count]
		slices.Sort(indices)
		r.Counts[c] = uint16(count)
		for i, index := range indices {
			r.Indices[c*places+i] = uint16(index)
			r.Values[c*places+i] = drawValue(random, kind)
		}
	}
	return r
}

func drawValue(random *rand.Rand, kind string) float32 {
	for {
		v := float32(random.NormFloat64())
		switch kind {
		case "signs":
			v = float32(math.Copysign(1, float64(v)))
		case "wide": // from subnormal numbers to values whose products with a basis are just finite
			v *= float32(math.Pow(10, float64(random.IntN(70)-43)))
		}
		if v != 0 {
			return v
		}
	}
}

func testAnyResults(t *testing.T, d *Device) {
	rapid.Check(t, func(rt *rapid.T) {
		edge := rapid.OneOf(rapid.Int64Range(1, 150), rapid.SampledFrom([]int64{16, 31, 48, 64, 100, 128}))
		dimensions := rapid.SampledFrom([]int{2, 3, 1, 2, 0}).Draw(rt, "dimensions")
		shape := rapid.SliceOfN(edge, dimensions, dimensions).Draw(rt, "shape")
		if len(shape) == 3 {
			shape[0] = 1 + shape[0]%3
		}
		l, err := distro.NewLayout(shape, rapid.OneOf(rapid.IntRange(1, distro.MaxChunk), rapid.SampledFrom([]int{32, 64, 128})).Draw(rt, "chunk"))
		if err != nil {
			rt.Fatal(err)
		}
		var results []codec.TensorResult
		for i := range rapid.IntRange(0, 5).Draw(rt, "results") {
			results = append(results, drawResult(rt, l, fmt.Sprint(i)))
		}
		weights := normal(rapid.Uint64().Draw(rt, "weights"), l.Elements(), 1)
		onDevice, err := d.newBuffer(weights)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() {
			if err := onDevice.Close(); err != nil {
				rt.Error(err)
			}
		}()
		p := distro.ApplyParams{
			LR:           rapid.SampledFrom([]float32{0, 1e-4, 0.37}).Draw(rt, "rate"),
			WeightFactor: rapid.SampledFrom([]float32{1, 0.999, 1e-30}).Draw(rt, "factor"),
		}
		if rapid.Bool().Draw(rt, "votes") {
			p.Votes = rapid.SliceOfN(rapid.Uint8Range(1, assign.FullVote), len(results), len(results)).Draw(rt, "of the results")
		}
		want, native := slices.Clone(weights), slices.Clone(weights)
		for _, err := range []error{
			kernel(t, "go").DecodeApply(l, results, want, p),
			kernel(t, "").DecodeApply(l, results, native, p),
			d.apply(l, results, onDevice.Tensor(), p),
		} {
			if err != nil {
				rt.Fatal(err)
			}
		}
		got, err := onDevice.Values()
		if err != nil {
			rt.Fatal(err)
		}
		sameBits(rt, "like the reference", got, want)
		sameBits(rt, "like the CPU's kernel", got, native)
		compareMeans(rt, d, l, results, p.Votes)
		if len(results) == 0 {
			return
		}
		if err := kernel(t, "go").AddBack(l, want, results[0]); err != nil {
			rt.Fatal(err)
		}
		if err := d.addBack(l, onDevice.Tensor(), results[0]); err != nil {
			rt.Fatal(err)
		}
		if got, err = onDevice.Values(); err != nil {
			rt.Fatal(err)
		}
		sameBits(rt, "added back", got, want)
	})
}

func TestAnyResultsGiveTheBitsOfTheReference(t *testing.T) { testAnyResults(t, emulated(t)) }

func TestAnyResultsOnADevice(t *testing.T) { testAnyResults(t, real(t)) }

// TestEqualsOnTheDevice has two equal columns of coefficients. Of an equal pair, Encode must send
// the lower index first.
func TestEqualsOnTheDevice(t *testing.T) {
	d := emulated(t)
	l, err := distro.NewLayout([]int64{64, 2}, 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, topK := range []int{1, 2, 3, 7, 64, 65, 99, 127, 128} {
		delta, grad := make([]float32, l.Elements()), make([]float32, l.Elements())
		grad[0] = 1
		onDevice := buffer(t, d, delta)
		p := distro.EncodeParams{Decay: 1, LR: 1, TopK: topK}
		reference := p
		reference.Floor = kernel(t, "go").Floor(delta, grad, p)
		want, err := kernel(t, "go").Encode(l, delta, grad, reference)
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.encode(l, onDevice.Tensor(), buffer(t, d, grad).Tensor(), p)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Indices, want.Indices) {
			t.Errorf("top %d: %v, want %v", topK, got.Indices, want.Indices)
		}
		sameBits(t, "momentum", values(t, onDevice), delta)
	}
}

// drawMomenta returns momenta whose coefficients have many equal magnitudes, many zeros, or neither.
func drawMomenta(rt *rapid.T, n int) []float32 {
	random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 2))
	momenta := make([]float32, n)
	switch rapid.SampledFrom([]string{"values", "impulses", "levels", "constant", "zeros"}).Draw(rt, "kind") {
	case "values":
		copy(momenta, normal(random.Uint64(), n, 1))
	case "impulses":
		for range 1 + random.IntN(4) {
			momenta[random.IntN(n)] = float32(1 - 2*random.IntN(2))
		}
	case "levels":
		for i := range momenta {
			momenta[i] = float32(random.IntN(3) - 1)
		}
	case "constant":
		for i := range momenta {
			momenta[i] = 0.5
		}
	}
	return momenta
}

// testAnySelection compares the coefficients that are selected on a device, for few and many of them.
func testAnySelection(t *testing.T, d *Device) {
	shapes := [][]int64{{64, 2}, {2, 64}, {2, 2}, {4, 32}, {64, 64}, {29, 44}, {1, 77}, {128, 128}}
	rapid.Check(t, func(rt *rapid.T) {
		l, err := distro.NewLayout(rapid.SampledFrom(shapes).Draw(rt, "shape"), distro.MaxChunk)
		if err != nil {
			rt.Fatal(err)
		}
		p := distro.EncodeParams{Decay: 1, LR: 1, TopK: rapid.IntRange(1, 76).Draw(rt, "top-k")}
		grad := drawMomenta(rt, l.Elements())
		delta := make([]float32, l.Elements())
		onDevice, there := d.drawBuffer(rt, delta), d.drawBuffer(rt, grad)
		reference := p
		reference.Floor = kernel(t, "go").Floor(delta, grad, p)
		want, err := kernel(t, "go").Encode(l, delta, grad, reference)
		if err != nil {
			rt.Fatal(err)
		}
		got, err := d.encode(l, onDevice.Tensor(), there.Tensor(), p)
		if err != nil {
			rt.Fatal(err)
		}
		if !slices.Equal(got.Counts, want.Counts) || !slices.Equal(got.Indices, want.Indices) {
			rt.Fatalf("selected %v %v, want %v %v", got.Counts, got.Indices, want.Counts, want.Indices)
		}
		sameBits(rt, "coefficients", got.Values, want.Values)
		left, err := onDevice.Values()
		if err != nil {
			rt.Fatal(err)
		}
		sameBits(rt, "momentum", left, delta)
	})
}

// drawBuffer returns a buffer that is closed at the end of a drawn case.
func (d *Device) drawBuffer(rt *rapid.T, values []float32) *deviceBuffer {
	b, err := d.newBuffer(values)
	if err != nil {
		rt.Fatal(err)
	}
	rt.Cleanup(func() {
		if err := b.Close(); err != nil {
			rt.Error(err)
		}
	})
	return b
}

func TestAnySelectionHasTheBitsOfTheReference(t *testing.T) { testAnySelection(t, emulated(t)) }

func TestAnySelectionOnADevice(t *testing.T) { testAnySelection(t, real(t)) }
