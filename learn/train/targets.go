package train

import (
	"fmt"

	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/data/tokens"
	"github.com/psyche-go/psyche/learn/torch"
)

// text is a text that the model computes separately: tokens that attend only to each other, with
// their targets.
type text struct {
	inputs, targets []int32
	counted         int64 // number of targets other than torch.IgnoreTarget
}

// texts returns the texts of sequence i of a batch that have a target: one, or the texts that are
// packed into it. The model computes each packed text separately, so that none attends to another
// and the positions of each start with 0. The last token of a text predicts the first of the next
// if the labels require it; otherwise it has no target.
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
		end := first + length // end of the inputs
		if end == len(sequence) || batch.Labels == nil || targets[end] == torch.IgnoreTarget {
			end-- // nothing follows its last token, or there is no target
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

// count counts the targets of a text, which starts with token first of a sequence. If tokens is
// true, it counts all without checking them.
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
