package distro

import (
	"fmt"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/learn/distro/distrotest"
)

// perHundredMillion reports the time of an operation on n parameters, scaled to milliseconds for
// 100 million parameters.
func perHundredMillion(b *testing.B, n int, start time.Time) {
	b.ReportMetric(time.Since(start).Seconds()*1e3/float64(b.N)*1e8/float64(n), "ms/100M")
}

func benchmarkKernels(b *testing.B, run func(b *testing.B, kernel *Kernel)) {
	for _, kernel := range kernels(b) {
		b.Run(fmt.Sprintf("isa=%s/threads=%d", kernel.ISA(), kernel.threads), func(b *testing.B) { run(b, kernel) })
	}
}

// benchmarkSize exceeds any cache, so that the benchmark includes memory access.
const benchmarkSize = 2048

func BenchmarkEncode(b *testing.B) {
	l := newLayout(b, []int64{4, benchmarkSize, benchmarkSize}, 64)
	delta, grad := normal(1, l.Elements(), 1), normal(2, l.Elements(), 1)
	for _, topK := range []int{8, 32} {
		b.Run(fmt.Sprintf("top=%d", topK), func(b *testing.B) {
			benchmarkKernels(b, func(b *testing.B, kernel *Kernel) {
				start := time.Now()
				for b.Loop() {
					if _, err := kernel.Encode(l, delta, grad, EncodeParams{Decay: 0.999, LR: 1e-3, TopK: topK}); err != nil {
						b.Fatal(err)
					}
				}
				perHundredMillion(b, l.Elements(), start)
			})
		})
	}
}

func BenchmarkDecodeApply(b *testing.B) {
	l := newLayout(b, []int64{4, benchmarkSize, benchmarkSize}, 64)
	delta, weights := normal(1, l.Elements(), 1), normal(3, l.Elements(), 0.02)
	kernel, err := NewKernel(Options{})
	if err != nil {
		b.Fatal(err)
	}
	var results []codec.TensorResult
	for i := range 16 {
		r, err := kernel.Encode(l, delta, normal(uint64(10+i), l.Elements(), 1), EncodeParams{Decay: 0.9, LR: 1e-3, TopK: 8})
		if err != nil {
			b.Fatal(err)
		}
		distrotest.ToSigns(r)
		results = append(results, r)
	}
	for _, peers := range []int{1, 4, 16} {
		b.Run(fmt.Sprintf("peers=%d", peers), func(b *testing.B) {
			benchmarkKernels(b, func(b *testing.B, kernel *Kernel) {
				start := time.Now()
				for b.Loop() {
					if err := kernel.DecodeApply(l, results[:peers], weights, ApplyParams{LR: 1e-4, WeightFactor: 1}); err != nil {
						b.Fatal(err)
					}
				}
				perHundredMillion(b, l.Elements(), start)
			})
		})
	}
}
