package distro

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro/distrotest"
)

// demoCase is a case of testdata/demo.json. scripts/reference/demo_vectors.py computed it with the
// published algorithm in double precision.
type demoCase struct {
	Shape     []int64
	Chunk     int
	TopK      int `json:"topk"`
	Decay, LR float32
	Senders   []struct{ Momentum, Gradient, Indices, Values, Gap, Peak []byte }
	Residual  []byte
	Updates   []struct{ Signs, Values []byte }
}

func readDemo(t *testing.T) []demoCase {
	t.Helper()
	b, err := os.ReadFile("testdata/demo.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Cases []demoCase }
	if err := json.Unmarshal(b, &file); err != nil {
		t.Fatal(err)
	}
	return file.Cases
}

func unpack[T any](t *testing.T, b []byte, size int) []T {
	t.Helper()
	out := make([]T, len(b)/size)
	if err := binary.Read(bytes.NewReader(b), binary.LittleEndian, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// fixed decodes the inputs, which are multiples of 1/256.
func fixed(t *testing.T, b []byte) []float32 {
	t.Helper()
	var out []float32
	for _, v := range unpack[int16](t, b, 2) {
		out = append(out, float32(v)/256)
	}
	return out
}

// half returns the number with the given bits in IEEE 754 half precision.
func half(b uint16) float64 {
	fraction, exponent := float64(b&0x3ff)/1024, int(b>>10&31)
	if exponent == 0 {
		exponent = 1
	} else {
		fraction++
	}
	return math.Copysign(math.Ldexp(fraction, exponent-15), 1-2*float64(b>>15))
}

const (
	// demoTolerance is the maximum difference of a coefficient from the reference, relative to the
	// largest coefficient of its chunk.
	demoTolerance = 1e-5
	// demoZero is the fraction of the largest update below which the sign of an update depends on
	// rounding.
	demoZero = 1e-5
)

func TestAgreesWithThePublishedAlgorithm(t *testing.T) {
	var coefficients, otherChoice, signs, nearZero int
	worst := 0.0
	for _, c := range readDemo(t) {
		t.Run(fmt.Sprintf("%v by %d top %d", c.Shape, c.Chunk, c.TopK), func(t *testing.T) {
			l := newLayout(t, c.Shape, c.Chunk)
			for _, set := range availableISAs() {
				kernel, err := NewKernel(Options{ISA: set.name})
				if err != nil {
					t.Fatal(err)
				}
				results, other, far := c.encode(t, kernel, l)
				coefficients += len(results) * len(results[0].Values)
				otherChoice += other
				worst = max(worst, far)
				compared, skipped := c.decode(t, kernel, l, results)
				signs += compared
				nearZero += skipped
			}
		})
	}
	t.Logf("%d coefficients, largest error %.1e of the chunk's largest; %d chosen otherwise within rounding of a tie", coefficients, worst, otherChoice)
	t.Logf("%d signs agree, %d within %g of the largest from zero left out", signs, nearZero, demoZero)
}

// encode compares the result of each sender, and the residual of the first sender. It returns the
// reference's results, the number of indices that differ within rounding, and the largest error.
func (c demoCase) encode(t *testing.T, kernel *Kernel, l Layout) (want []codec.TensorResult, other int, worst float64) {
	for i, sender := range c.Senders {
		delta := fixed(t, sender.Momentum)
		got, err := kernel.Encode(l, delta, fixed(t, sender.Gradient), EncodeParams{Decay: c.Decay, LR: c.LR, TopK: c.TopK})
		if err != nil {
			t.Fatal(err)
		}
		reference := codec.TensorResult{Counts: got.Counts, Indices: unpack[uint16](t, sender.Indices, 2), Values: unpack[float32](t, sender.Values, 4)}
		gaps, peaks := unpack[float32](t, sender.Gap, 4), unpack[float32](t, sender.Peak, 4)
		k := l.Codec(c.TopK).K
		for chunk := range l.Chunks() {
			slots := chunk*k + k
			if !slices.Equal(got.Indices[chunk*k:slots], reference.Indices[chunk*k:slots]) {
				if gaps[chunk] > demoTolerance*peaks[chunk] {
					t.Errorf("%s: sender %d, chunk %d: indices %v, want %v", kernel.ISA(), i, chunk, got.Indices[chunk*k:slots], reference.Indices[chunk*k:slots])
				}
				other++
				continue
			}
			for at := chunk * k; at < slots; at++ {
				far := math.Abs(float64(got.Values[at])-float64(reference.Values[at])) / float64(peaks[chunk])
				worst = max(worst, far)
				if far > demoTolerance {
					t.Errorf("%s: sender %d, chunk %d: coefficient %d is %v, want %v", kernel.ISA(), i, chunk, got.Indices[at], got.Values[at], reference.Values[at])
				}
			}
		}
		if i == 0 && other == 0 {
			compareResidual(t, kernel, delta, unpack[float32](t, c.Residual, 4))
		}
		want = append(want, reference)
	}
	return want, other, worst
}

func compareResidual(t *testing.T, kernel *Kernel, got, want []float32) {
	peak := float64(slices.Max(want))
	for i := range want {
		if math.Abs(float64(got[i])-float64(want[i])) > demoTolerance*peak {
			t.Fatalf("%s: residual %d is %v, want %v", kernel.ISA(), i, got[i], want[i])
		}
	}
}

// decode compares the directions in which the first n senders' results move the weights, for every
// n. It returns how many directions agree and how many are too near zero to compare.
func (c demoCase) decode(t *testing.T, kernel *Kernel, l Layout, results []codec.TensorResult) (agree, nearZero int) {
	for n := 1; n <= len(results); n++ {
		for _, quantized := range []bool{true, false} {
			var sent []codec.TensorResult
			for _, r := range results[:n] {
				r.Values = slices.Clone(r.Values)
				if quantized {
					distrotest.ToSigns(r)
				}
				sent = append(sent, r)
			}
			update := c.Updates[n-1].Values
			if quantized {
				update = c.Updates[n-1].Signs
			}
			weights := make([]float32, l.Elements())
			if err := kernel.DecodeApply(l, sent, weights, ApplyParams{LR: 1, WeightFactor: 1}); err != nil {
				t.Fatal(err)
			}
			for i, b := range unpack[uint16](t, update, 2) {
				u := half(b)
				if math.Abs(u) < demoZero {
					nearZero++
					continue
				}
				if float64(weights[i]) != -math.Copysign(1, u) {
					t.Fatalf("%s: %d senders, quantized %v: weight %d moves by %v against an update of %v", kernel.ISA(), n, quantized, i, weights[i], u)
				}
				agree++
			}
		}
	}
	return agree, nearZero
}
