package train

import (
	"fmt"

	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/data/tokens"
	"github.com/psyche-go/psyche/learn/torch"
)

// text is what goes through the model by itself: tokens that see nothing but each other, with what they are
// to predict.
type text struct {
	inputs, targets []int32
	counted         int64 // targets that are not torch.IgnoreTarget
}

// texts returns the texts of sequence i of a batch that have something to learn: one, or those that are
// packed into it, each of which the model computes by itself, so that none attends to another and the
// positions of each begin with 0. The last token of a text predicts the first of the next where labels ask
// for it, and else nothing.
func (r *replica) texts(batch data.Batch, i int) ([]text, error) {
	sequence, targets := batch.Sequences[i], batch.Sequences[i]
	if batch.Labels != nil {
		if len(batch.Labels) <= i || len(batch.Labels[i]) != len(sequence) {
			return nil, fmt.Errorf("not one label for each of the %d tokens", len(sequence))
		}
		targets = batch.Labels[i]
	}
	lengths := []int{len(sequence)}
	if batch.Positions != nil {
		if len(batch.Positions) <= i || len(batch.Positions[i]) != len(sequence) {
			return nil, fmt.Errorf("not one position for each of the %d tokens", len(sequence))
		}
		var err error
		if lengths, err = tokens.TextLengths(batch.Positions[i]); err != nil {
			return nil, err
		}
	}
	var all []text
	first := 0
	for _, length := range lengths {
		end := first + length // of the inputs
		if end == len(sequence) || batch.Labels == nil || targets[end] == torch.IgnoreTarget {
			end-- // nothing is behind its last token, or nothing to be learned
		}
		one := text{inputs: sequence[first:end], targets: targets[first+1 : end+1]}
		if err := r.count(&one, first, batch.Labels == nil); err != nil {
			return nil, err
		}
		if one.counted > 0 {
			all = append(all, one)
		}
		first += length
	}
	return all, nil
}

// count counts the targets of a text, which begins with token first of a sequence. Tokens are counted
// without a look at them.
func (r *replica) count(of *text, first int, tokens bool) error {
	if tokens {
		of.counted = int64(len(of.targets))
		return nil
	}
	for j, label := range of.targets {
		if label == torch.IgnoreTarget {
			continue
		}
		if label < 0 || label >= r.vocabSize {
			return fmt.Errorf("label %d is %d, the model's vocab_size is %d", first+j+1, label, r.vocabSize)
		}
		of.counted++
	}
	return nil
}
