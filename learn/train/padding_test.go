package train

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/model/modeltest"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/record/config"
)

const embedding = "model.embed_tokens.weight"

// paddedBatches returns the batches of scripts/reference/padding_vectors.py, in which the padding
// token 0 is frequent.
func paddedBatches(t *testing.T) (batches []data.Batch) {
	t.Helper()
	raw, err := os.ReadFile("testdata/padding/tokens.ds")
	if err != nil {
		t.Fatal(err)
	}
	const steps, sequences, length = 12, 4, 17
	for step := range steps {
		var batch data.Batch
		for i := range sequences {
			sequence := make([]int32, length)
			for j := range sequence {
				sequence[j] = int32(binary.LittleEndian.Uint16(raw[2*(length*(sequences*step+i)+j):]))
			}
			batch.Sequences = append(batch.Sequences, sequence)
		}
		batches = append(batches, batch)
	}
	return batches
}

func paddedTrainer(t *testing.T, v modeltest.Vectors, logged *bytes.Buffer) *AdamW {
	t.Helper()
	o := toyOptions(t)
	o.Model = checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: v.Config}}, Tensors: v.Weights}
	o.Optimizer = config.Optimizer{AdamW: &config.AdamW{Betas: [2]float64{0.9, 0.95}, Eps: 1e-8, WeightDecay: 0.1}}
	o.LRSchedule = config.LRSchedule{Constant: &config.ConstantLR{BaseLR: 1e-3}}
	o.Logger = slog.New(slog.NewTextHandler(logged, nil))
	trainer, err := NewAdamW(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := trainer.Close(); err != nil {
			t.Error(err)
		}
	})
	return trainer
}

// TestPaddingAgainstTransformers checks that gradients equal transformers' gradients except in the
// padding token's row, which is zero in transformers. It also checks that the losses of AdamW's
// steps equal transformers' losses without padding_idx.
func TestPaddingAgainstTransformers(t *testing.T) {
	requireTorch(t)
	v := modeltest.Read(t, "padding")
	var logged bytes.Buffer
	trainer := paddedTrainer(t, v, &logged)
	batches := paddedBatches(t)
	err := trainer.gradient(t.Context(), batches[0], func(_ *torch.Scope, _ float64, gradients []*torch.Tensor) error {
		for i, p := range trainer.parameters {
			got, want := gradients[i].CopyFloat32s(), slices.Clone(v.Gradients[p.name])
			if p.name == embedding {
				row := want[:p.shape[1]] // row of token 0
				if slices.ContainsFunc(row, func(x float32) bool { return x != 0 }) {
					t.Error("transformers trains the row")
				}
				copy(row, modeltest.Float32s(t, v.Other["unpadded_embedding"]))
				if !slices.ContainsFunc(got[:p.shape[1]], func(x float32) bool { return math.Abs(float64(x)) > 1e-3 }) {
					t.Error("the row has no gradient")
				}
			}
			if worst := modeltest.MaxRelativeError(t, p.name, got, want); worst > 1e-5 {
				t.Errorf("%s: the gradient is off by %.1e", p.name, worst)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	want, padded := modeltest.Float32s(t, v.Other["losses"]), modeltest.Float32s(t, v.Other["losses_with_padding_idx"])
	worst, apart := 0.0, 0.0
	for i, batch := range batches {
		loss, err := trainer.Step(t.Context(), uint32(i+1), batch)
		if err != nil {
			t.Fatal(err)
		}
		worst, apart = max(worst, math.Abs(loss-float64(want[i]))), max(apart, math.Abs(loss-float64(padded[i])))
	}
	t.Logf("losses are off by %.1e; with padding_idx by %.1e", worst, apart)
	if worst > 1e-5 || apart < 5e-4 {
		t.Errorf("losses are off by %.1e, with padding_idx by %.1e", worst, apart)
	}
	if text := logged.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "level=WARN") || !strings.Contains(text, "pad_token_id=0") || !strings.Contains(text, "config.json") {
		t.Errorf("logged %q", text)
	}
}

// TestNoPaddingNoWarning checks that a batch without the padding token in its input logs nothing,
// even if the token is predicted.
func TestNoPaddingNoWarning(t *testing.T) {
	requireTorch(t)
	var logged bytes.Buffer
	trainer := paddedTrainer(t, modeltest.Read(t, "padding"), &logged)
	if _, err := trainer.Step(t.Context(), 1, data.Batch{Sequences: [][]int32{{1, 2, 3, 4, 0}}}); err != nil || logged.Len() > 0 {
		t.Errorf("%v, logged %q", err, logged.String())
	}
}
