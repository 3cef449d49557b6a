package train

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/torch"
)

// lossOf returns the loss from which a batch's gradient is computed.
func lossOf(t *testing.T, trainer *Trainer, batch data.Batch) (float64, error) {
	t.Helper()
	var mean float64
	err := trainer.gradient(t.Context(), batch, func(_ *torch.Scope, loss float64, _ []*torch.Tensor) error {
		mean = loss
		return nil
	})
	return mean, err
}

// TestLabelsThatAreIgnoredDoNotCount checks the loss of two sequences, one ignored completely and
// the other partly. The loss equals the loss of the remaining tokens alone.
func TestLabelsThatAreIgnoredDoNotCount(t *testing.T) {
	for _, size := range []int{1, 2} {
		trainer := newTestTrainer(t, func(o *Options) { o.MicroBatch = size })
		sequences := toyBatch(0, 2).Sequences
		short := sequences[1][:9]
		want, err := lossOf(t, trainer, data.Batch{Sequences: [][]int32{short}})
		if err != nil {
			t.Fatal(err)
		}
		none := slices.Repeat([]int32{data.IgnoreLabel}, 17)
		labels := [][]int32{none, append(slices.Clone(short), none[9:]...)}
		got, err := lossOf(t, trainer, data.Batch{Sequences: sequences, Labels: labels})
		if err != nil {
			t.Fatal(err)
		}
		if math.Abs(got-want) > 1e-5 {
			t.Errorf("micro-batches of %d: loss %v, want %v", size, got, want)
		}
	}
}

func TestLabelsAndPositionsAreChecked(t *testing.T) {
	trainer := newTestTrainer(t)
	sequences := toyBatch(0, 1).Sequences
	plain, err := lossOf(t, trainer, data.Batch{Sequences: sequences})
	if err != nil {
		t.Fatal(err)
	}
	counting := make([]int32, 17)
	for i := range counting {
		counting[i] = int32(i)
	}
	same, err := lossOf(t, trainer, data.Batch{Sequences: sequences, Labels: sequences, Positions: [][]int32{counting}})
	if err != nil || same != plain {
		t.Errorf("redundant labels and positions: %v, %v, want %v", same, err, plain)
	}
	again := slices.Clone(counting)
	again[8] = 7
	wild := slices.Clone(sequences[0])
	wild[5] = -99
	for name, batch := range map[string]data.Batch{
		"nothing to learn": {Labels: [][]int32{slices.Repeat([]int32{data.IgnoreLabel}, 17)}},
		"labels missing":   {Labels: [][]int32{}},
		"a label too few":  {Labels: [][]int32{sequences[0][:16]}},
		"label outside":    {Labels: [][]int32{wild}},
		"positions jump":   {Positions: [][]int32{again}},
	} {
		batch.Sequences = sequences
		if _, err := lossOf(t, trainer, batch); !errors.Is(err, errTokens) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
