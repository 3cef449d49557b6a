package train

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/data/tokens"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/model/modeltest"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/record/config"
)

// packedBatch returns the samples of scripts/reference/packed_vectors.py, read from their Parquet
// file.
func packedBatch(t *testing.T) data.Batch {
	t.Helper()
	samples := []config.DataLocation{{Preprocessed: &config.PreprocessedData{Path: "testdata/packed"}}}
	provider, err := data.New(t.Context(), samples, data.Options{SeqLen: 24, VocabSize: 48})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := provider.Close(); err != nil {
			t.Error(err)
		}
	}()
	batch, err := provider.Batch(t.Context(), assign.BatchID{Start: 0, End: 3})
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

// TestPackedSamplesAgainstTransformers compares samples that contain several packed texts with
// transformers' results for whole rows. It checks the loss and all gradients, in micro-batches and
// on several engines.
func TestPackedSamplesAgainstTransformers(t *testing.T) {
	requireTorch(t)
	batch := packedBatch(t)
	for _, name := range []string{"qwen3", "mixtral", "gemma3"} {
		v := modeltest.Read(t, "packed/"+name)
		for _, p := range []Parallelism{{}, {Data: 2}} {
			t.Run(fmt.Sprintf("%s on %d engines", name, p.engines()), func(t *testing.T) {
				trainer := newTestTrainer(t, func(o *Options) {
					o.Model = checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: v.Config}}, Tensors: v.Weights}
					o.Parallel = p
				})
				var loss, worst float64
				err := trainer.gradient(t.Context(), batch, func(_ *torch.Scope, mean float64, gradients []*torch.Tensor) error {
					loss = mean
					for i, of := range trainer.parameters {
						worst = max(worst, modeltest.MaxRelativeError(t, of.name, gradients[i].CopyFloat32s(), v.Gradients[of.name]))
					}
					return nil
				})
				off := math.Abs(loss - float64(modeltest.Float32s(t, v.Other["loss"])[0]))
				if err != nil || off > 1e-5 || worst > 1e-4 {
					t.Errorf("%v; loss %v is off by %.1e, gradients by %.1e", err, loss, off, worst)
				}
				t.Logf("loss is off by %.1e, gradients by %.1e", off, worst)
			})
		}
	}
}

// TestTextsWithoutLabels checks that no token of a text is predicted from the previous text.
func TestTextsWithoutLabels(t *testing.T) {
	trainer := newTestTrainer(t)
	long, short := toyBatch(0, 2).Sequences[0][:9], toyBatch(0, 2).Sequences[1][:6]
	apart, err := lossOf(t, trainer, data.Batch{Sequences: [][]int32{long, short}})
	if err != nil {
		t.Fatal(err)
	}
	packed, err := lossOf(t, trainer, data.Batch{
		Sequences: [][]int32{slices.Concat(long, short)}, Positions: [][]int32{tokens.PackedPositions([]int{9, 6})},
	})
	if err != nil || packed != apart {
		t.Errorf("packed %v, %v, apart %v", packed, err, apart)
	}
}

// TestPaddingIsNotComputed checks that the model does not compute a text without labels. For a
// model with capped logits, the loss of such a text would be NaN.
func TestPaddingIsNotComputed(t *testing.T) {
	const capped = `{"architectures":["Gemma2ForCausalLM"],"vocab_size":128,"hidden_size":32,"intermediate_size":64,"head_dim":16,
"num_hidden_layers":1,"num_attention_heads":2,"num_key_value_heads":1,"max_position_embeddings":64}`
	tensors, err := model.Init([]byte(capped), 1)
	if err != nil {
		t.Fatal(err)
	}
	trainer := newTestTrainer(t, func(o *Options) {
		o.Model = checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: []byte(capped)}}, Tensors: tensors}
		o.MicroBatch = 1
	})
	sequences := toyBatch(0, 2).Sequences
	none := slices.Repeat([]int32{data.IgnoreLabel}, 17)
	got, err := lossOf(t, trainer, data.Batch{Sequences: sequences, Labels: [][]int32{none, sequences[1]}})
	want, wantErr := lossOf(t, trainer, data.Batch{Sequences: sequences[1:]})
	if err != nil || wantErr != nil || got != want {
		t.Errorf("%v, %v; want %v, %v", got, err, want, wantErr)
	}
}
