package train

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/record/config"
	"pgregory.net/rapid"
)

var testShapes = [][]int64{{24, 16}, {2, 16, 8}, {10}}

func testDistro() config.Distro {
	return config.Distro{CompressionDecay: 0.5, CompressionTopK: 2, CompressionChunk: 8, Quantize1Bit: true, ClipGradNorm: 1}
}

func newTestOptimizer(t testing.TB, c config.Distro) *optimizer {
	t.Helper()
	o, err := newOptimizer(c, testShapes, 1)
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// randomSlices returns one slice for each test shape.
func randomSlices(seed uint64, scale float32) [][]float32 {
	random := rand.New(rand.NewPCG(seed, 0))
	slices := make([][]float32, len(testShapes))
	for i, shape := range testShapes {
		n := int64(1)
		for _, dim := range shape {
			n *= dim
		}
		slices[i] = make([]float32, n)
		for j := range slices[i] {
			slices[i][j] = scale * float32(random.NormFloat64())
		}
	}
	return slices
}

func copySlices(s [][]float32) [][]float32 {
	c := make([][]float32, len(s))
	for i := range s {
		c[i] = slices.Clone(s[i])
	}
	return c
}

func sameBits(a, b [][]float32) bool {
	return slices.EqualFunc(a, b, func(x, y []float32) bool {
		return slices.EqualFunc(x, y, func(v, w float32) bool { return math.Float32bits(v) == math.Float32bits(w) })
	})
}

func encodeStep(t testing.TB, o *optimizer, step uint32, gradients [][]float32) []byte {
	t.Helper()
	payload, err := o.encode(testHeader(step), vectors{here: gradients}, norm(gradients), 1e-2)
	if err != nil {
		t.Fatal(err)
	}
	return payload
}

func testHeader(step uint32) codec.Header {
	return codec.Header{Step: step, BatchStart: 1, BatchEnd: 2}
}

// TestUncountedResultIsGivenBack checks that the momentum equals the momentum of an optimizer that
// sent nothing: it decays and receives the gradient, and nothing of it is lost.
func TestUncountedResultIsGivenBack(t *testing.T) {
	o := newTestOptimizer(t, testDistro())
	momentum := randomSlices(1, 0) // value of δ if nothing had been sent
	for step := range uint32(4) {
		gradients := randomSlices(uint64(step)+10, 0.01)
		encodeStep(t, o, step, gradients)
		for i := range momentum {
			for j := range momentum[i] {
				momentum[i][j] = 0.5*momentum[i][j] + 1e-2*gradients[i][j]
			}
		}
		if step == 2 {
			continue // this result is finalized only after the next step, which decays the momentum
		}
		for s := range step + 1 {
			if err := o.finalize(s, false); err != nil {
				t.Fatal(err)
			}
		}
		for i := range momentum {
			for j := range momentum[i] {
				if diff := math.Abs(float64(momentum[i][j] - momentumOf(o)[i][j])); diff > 1e-9 {
					t.Fatalf("step %d: momentum %d[%d] differs by %v", step, i, j, diff)
				}
			}
		}
	}
}

func TestCountedResultIsGone(t *testing.T) {
	o := newTestOptimizer(t, testDistro())
	encodeStep(t, o, 1, randomSlices(1, 0.01))
	before := copySlices(momentumOf(o))
	if err := o.finalize(1, true); err != nil {
		t.Fatal(err)
	}
	if !sameBits(before, momentumOf(o)) || len(o.sent) != 0 {
		t.Error("finalizing a counted result changed the momentum")
	}
	if err := o.finalize(1, false); err != nil || !sameBits(before, momentumOf(o)) {
		t.Errorf("finalized twice: %v", err)
	}
}

func TestFailedEncodeChangesNothing(t *testing.T) {
	o := newTestOptimizer(t, testDistro())
	encodeStep(t, o, 1, randomSlices(1, 0.01))
	before := copySlices(momentumOf(o))
	infinite := randomSlices(2, 0.01)
	infinite[2][9] = float32(math.Inf(1))
	noNumber := randomSlices(2, 0.01)
	noNumber[0][0] = float32(math.NaN())
	unclipped := testDistro()
	unclipped.ClipGradNorm = 0
	tests := []struct {
		name      string
		config    config.Distro
		step      uint32
		gradients [][]float32
		want      error
	}{
		{"infinite", testDistro(), 2, infinite, errNotFinite},
		{"not a number", testDistro(), 2, noNumber, errNotFinite},
		{"huge", unclipped, 2, randomSlices(3, 1e30), errNotFinite},
		{"trained before", testDistro(), 1, randomSlices(2, 0.01), errStep},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o.config = test.config
			_, err := o.encode(testHeader(test.step), vectors{here: test.gradients}, norm(test.gradients), 1e-2)
			if !errors.Is(err, test.want) {
				t.Errorf("error = %v, want %v", err, test.want)
			}
			if !sameBits(before, momentumOf(o)) || len(o.sent) != 1 {
				t.Error("momentum or results changed")
			}
		})
	}
}

func TestNothingIsSentOfNothing(t *testing.T) {
	o := newTestOptimizer(t, testDistro())
	payload := encodeStep(t, o, 1, randomSlices(1, 0))
	_, results, err := o.decode(payload)
	if err != nil {
		t.Fatal(err)
	}
	for i, result := range results {
		if slices.Max(result.Counts) != 0 {
			t.Errorf("tensor %d: sent %v", i, result.Counts)
		}
	}
}

// TestApplyGivesSameBits checks that replicas whose kernels use different numbers of threads get
// the same bits from the results of two trainers.
func TestApplyGivesSameBits(t *testing.T) {
	for _, quantize := range []bool{true, false} {
		c := testDistro()
		c.Quantize1Bit, c.WeightDecay = quantize, 0.1
		var weights [3][][]float32
		for i := range weights {
			weights[i] = randomSlices(5, 0.02)
		}
		trainers := [2]*optimizer{newTestOptimizer(t, c), newTestOptimizer(t, c)}
		for step := range uint32(5) {
			var results [][]codec.TensorResult
			for i, o := range trainers {
				payload := encodeStep(t, o, step, randomSlices(uint64(step)*7+uint64(i), 0.1))
				_, decoded, err := o.decode(payload)
				if err != nil {
					t.Fatal(err)
				}
				results = append(results, decoded)
			}
			for i := range weights {
				o, err := newOptimizer(c, testShapes, i+1)
				if err != nil {
					t.Fatal(err)
				}
				if err := o.apply(weights[i], results, nil, 1e-2); err != nil {
					t.Fatal(err)
				}
			}
		}
		if !sameBits(weights[0], weights[1]) || !sameBits(weights[0], weights[2]) {
			t.Errorf("quantize %v: replicas differ", quantize)
		}
		if sameBits(weights[0], randomSlices(5, 0.02)) {
			t.Error("weights did not change")
		}
	}
}

func TestApplyNothingDecays(t *testing.T) {
	c := testDistro()
	c.WeightDecay = 0.5
	o := newTestOptimizer(t, c)
	weights := randomSlices(1, 1)
	want := copySlices(weights)
	for i := range want {
		for j := range want[i] {
			want[i][j] *= 0.875
		}
	}
	if err := o.apply(weights, nil, nil, 0.25); err != nil {
		t.Fatal(err)
	}
	if !sameBits(weights, want) {
		t.Error("weights are not decayed")
	}
	if err := o.apply(weights, nil, nil, 2); !errors.Is(err, errUnsupported) {
		t.Errorf("decay of everything: error = %v", err)
	}
}

func TestClipScale(t *testing.T) {
	tests := []struct{ norm, limit, want float64 }{
		{0.5, 1, 1}, {1, 1, 1}, {4, 1, 1 / (4 + 1e-6)}, {100, 0, 1},
	}
	for _, test := range tests {
		if got := clipScale(test.norm, test.limit); got != test.want {
			t.Errorf("clipScale(%v, %v) = %v, want %v", test.norm, test.limit, got, test.want)
		}
	}
}

func TestNorm(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOf(rapid.SliceOf(rapid.Float32())).Draw(t, "values")
		want := 0.0
		for _, v := range slices.Concat(values...) {
			want += float64(v) * float64(v)
		}
		if got := norm(values); math.Abs(got-math.Sqrt(want)) > 1e-12*math.Sqrt(want) {
			t.Fatalf("norm = %v, want %v", got, math.Sqrt(want))
		}
	})
}

func TestNewOptimizerRejects(t *testing.T) {
	tests := []struct {
		name   string
		change func(c *config.Distro)
	}{
		{"top-k", func(c *config.Distro) { c.CompressionTopK = 0 }},
		{"chunk", func(c *config.Distro) { c.CompressionChunk = 0 }},
		{"decay over 1", func(c *config.Distro) { c.CompressionDecay = 1.5 }},
		{"decay not a number", func(c *config.Distro) { c.CompressionDecay = math.NaN() }},
		{"negative weight decay", func(c *config.Distro) { c.WeightDecay = -1 }},
		{"apply lag", func(c *config.Distro) { c.ApplyLag = 3 }},
		{"negative norm", func(c *config.Distro) { c.ClipGradNorm = -1 }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := testDistro()
			test.change(&c)
			if _, err := newOptimizer(c, testShapes, 1); !errors.Is(err, errUnsupported) {
				t.Errorf("error = %v, want ErrUnsupported", err)
			}
		})
	}
}

// TestMomentumDecaysWithTheRunsSteps checks that the momentum of a trainer that misses steps decays
// in these steps too, and that a result that does not count returns with the same decay.
func TestMomentumDecaysWithTheRunsSteps(t *testing.T) {
	o := newTestOptimizer(t, testDistro())
	momentum := randomSlices(1, 0) // value of δ if nothing had been sent
	newest := uint32(0)
	for _, step := range []uint32{1, 2, 6, 7, 20} {
		gradients := randomSlices(uint64(step)+10, 0.01)
		encodeStep(t, o, step, gradients)
		left := math.Pow(0.5, float64(step-newest))
		newest = step
		for i := range momentum {
			for j := range momentum[i] {
				momentum[i][j] = float32(left*float64(momentum[i][j])) + 1e-2*gradients[i][j]
			}
		}
		if step == 2 || step == 7 {
			continue // this result is finalized only after the next step
		}
		for done := range step + 1 {
			if err := o.finalize(done, false); err != nil {
				t.Fatal(err)
			}
		}
		for i := range momentum {
			for j := range momentum[i] {
				if diff := math.Abs(float64(momentum[i][j] - momentumOf(o)[i][j])); diff > 1e-9 {
					t.Fatalf("step %d: momentum %d[%d] differs by %v", step, i, j, diff)
				}
			}
		}
	}
}
