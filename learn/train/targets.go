package train

import (
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/torch"
)

// targets returns what a sequence's tokens but the last are to predict, and how many of
// these count.
func (r *replica) targets(batch data.Batch, i int) (targets []int32, counted int64, err error) {
	sequence := batch.Sequences[i]
	if batch.Positions != nil {
		if err := checkPositions(batch.Positions, i, len(sequence)); err != nil {
			return nil, 0, err
		}
	}
	if batch.Labels == nil {
		return sequence[1:], int64(len(sequence) - 1), nil
	}
	if len(batch.Labels) <= i || len(batch.Labels[i]) != len(sequence) {
		return nil, 0, fmt.Errorf("not one label for each of the %d tokens", len(sequence))
	}
	targets = batch.Labels[i][1:]
	for j, label := range targets {
		if label == torch.IgnoreTarget {
			continue
		}
		if label < 0 || label >= r.vocabSize {
			return nil, 0, fmt.Errorf("label %d is %d, the model's vocab_size is %d", j+1, label, r.vocabSize)
		}
		counted++
	}
	return targets, counted, nil
}

// checkPositions refuses positions that are not those that models count for themselves.
func checkPositions(positions [][]int32, i, tokens int) error {
	if len(positions) <= i || len(positions[i]) != tokens {
		return fmt.Errorf("not one position for each of the %d tokens", tokens)
	}
	for j, position := range positions[i] {
		if int(position) != j {
			return errors.New("its position_ids do not count 0, 1, 2 …: samples packed from several texts cannot be trained on yet")
		}
	}
	return nil
}
