package train

import (
	"context"
	"testing"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
)

// BenchmarkOptimizer measures the time that DisTrO adds to a step of a model of 4 M parameters.
func BenchmarkOptimizer(b *testing.B) {
	c := testDistro()
	c.CompressionTopK, c.CompressionChunk = 8, 64
	shapes := [][]int64{{2048, 1024}, {1024, 2048}}
	o, err := newOptimizer(c, shapes, 1)
	if err != nil {
		b.Fatal(err)
	}
	gradients := [][]float32{make([]float32, 2048*1024), make([]float32, 2048*1024)}
	for i := range gradients[0] {
		gradients[0][i], gradients[1][i] = float32(i%97)*1e-4, float32(i%89)*1e-4
	}
	weights := copySlices(gradients)
	var payload []byte
	var results []codec.TensorResult
	b.Run("norm", func(b *testing.B) {
		for b.Loop() {
			norm(gradients)
		}
	})
	b.Run("encode", func(b *testing.B) {
		for b.Loop() {
			o.sent = map[uint32][]codec.TensorResult{}
			if payload, err = o.encode(testHeader(1), vectors{here: gradients}, 1, 1e-3); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(len(payload)), "bytes/result")
	})
	b.Run("decode", func(b *testing.B) {
		for b.Loop() {
			if _, results, err = o.decode(payload); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("apply", func(b *testing.B) {
		three := [][]codec.TensorResult{results, results, results}
		for b.Loop() {
			if err := o.apply(weights, three, nil, 1e-3); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("finalize", func(b *testing.B) {
		for b.Loop() {
			o.sent[1] = results
			if err := o.finalize(1, false); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkAuditedEncode measures the time that DisTrO adds to a step whose results commit to the
// momentum.
func BenchmarkAuditedEncode(b *testing.B) {
	c := testDistro()
	c.CompressionTopK, c.CompressionChunk, c.ClipGradNorm = 8, 64, 1
	o, err := newOptimizer(c, [][]int64{{2048, 1024}, {1024, 2048}}, 1)
	if err != nil {
		b.Fatal(err)
	}
	if err := o.commit(); err != nil {
		b.Fatal(err)
	}
	gradients := [][]float32{make([]float32, 2048*1024), make([]float32, 2048*1024)}
	for i := range gradients[0] {
		gradients[0][i], gradients[1][i] = float32(i%97)*1e-4, float32(i%89)*1e-4
	}
	step := uint32(0)
	for b.Loop() {
		step++
		header := testHeader(step)
		header.Precision, header.Batch = audit.F32.Code(), [32]byte{1}
		if _, err := o.encode(header, vectors{here: gradients}, 1, 1e-3); err != nil {
			b.Fatal(err)
		}
		delete(o.sent, step)
	}
}

// BenchmarkTrain measures a whole step of the toy model.
func BenchmarkTrain(b *testing.B) {
	trainer := newTestTrainer(b)
	step := uint32(0)
	for b.Loop() {
		step++
		if _, err := trainer.Step(context.Background(), step, toyBatch(0, 4)); err != nil {
			b.Fatal(err)
		}
	}
}
