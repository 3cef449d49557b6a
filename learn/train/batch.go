package train

import (
	"fmt"

	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/data/tokens"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
)

// cutter cuts batches for a model.
type cutter struct {
	vocabSize int32
	maxTokens int // of the model's longest sequence
}

// text is a text that the model computes separately: tokens that attend only to each other, with
// their targets.
type text struct {
	inputs, targets []int32
	counted         int64 // number of targets other than torch.IgnoreTarget
}

// texts returns the texts of sequence i of a batch that have a target: the whole sequence, or the
// texts that are packed into it. The model computes each packed text separately, so that no text
// attends to another and the positions of each text start at 0. The last token of a text predicts
// the first token of the next text if the labels require it; otherwise it has no target.
func (c cutter) texts(batch data.Batch, i int) ([]text, error) {
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
		if err := c.count(&one, first, batch.Labels == nil); err != nil {
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
func (c cutter) count(of *text, first int, tokens bool) error {
	if tokens {
		of.counted = int64(len(of.targets))
		return nil
	}
	for j, label := range of.targets {
		if label == torch.IgnoreTarget {
			continue
		}
		if label < 0 || label >= c.vocabSize {
			return fmt.Errorf("label %d is %d, the model's vocab_size is %d", first+j+1, label, c.vocabSize)
		}
		of.counted++
	}
	return nil
}

// microBatch is a part of a batch that goes through the model at once: texts of the same length,
// with inputs and targets flattened.
type microBatch struct {
	rows, columns   int64
	inputs, targets []int32
	counted         int64 // number of targets other than torch.IgnoreTarget
}

// cut checks the sequences and cuts them, and the texts that are packed into one, into
// micro-batches of at most rows texts. tokens is the number of counting targets.
func (c cutter) cut(batch data.Batch, rows int64) (parts []microBatch, tokens int64, err error) {
	if len(batch.Sequences) == 0 {
		return nil, 0, fmt.Errorf("%w: no sequences", errTokens)
	}
	for i, sequence := range batch.Sequences {
		if len(sequence) < 2 {
			return nil, 0, fmt.Errorf("%w: sequence %d has %d tokens, want at least 2", errTokens, i, len(sequence))
		}
		for j, token := range sequence {
			if token < 0 || token >= c.vocabSize {
				return nil, 0, fmt.Errorf("%w: token %d of sequence %d is %d, the model's vocab_size is %d; was the data made with this model's tokenizer?",
					errTokens, j, i, token, c.vocabSize)
			}
		}
		texts, err := c.texts(batch, i)
		if err != nil {
			return nil, 0, fmt.Errorf("%w: sequence %d: %w", errTokens, i, err)
		}
		for _, one := range texts {
			columns := int64(len(one.inputs))
			if limit := c.maxTokens; columns > int64(limit) {
				return nil, 0, fmt.Errorf("%w: sequence %d trains %d tokens, the model's max_position_embeddings is %d", errTokens, i, columns, limit)
			}
			if last := len(parts) - 1; last < 0 || parts[last].columns != columns || parts[last].rows == rows {
				parts = append(parts, microBatch{columns: columns})
			}
			part := &parts[len(parts)-1]
			part.rows++
			part.inputs = append(part.inputs, one.inputs...)
			part.targets = append(part.targets, one.targets...)
			part.counted += one.counted
			tokens += one.counted
		}
	}
	if tokens == 0 {
		return nil, 0, fmt.Errorf("%w: all labels are %d: there is nothing to learn", errTokens, torch.IgnoreTarget)
	}
	return parts, tokens, nil
}

func (m microBatch) loss(s *torch.Scope, network model.Model) *torch.Tensor {
	return network.Loss(s, m.tensor(s, m.inputs), m.tensor(s, m.targets))
}

func (m microBatch) tensor(s *torch.Scope, tokens []int32) *torch.Tensor {
	return s.FromInt32s(tokens, m.rows, m.columns)
}

// gradient returns the loss, and adds share times its gradient to the gradients of the network's
// parameters.
func (m microBatch) gradient(s *torch.Scope, network model.Model, share float64) (loss float64) {
	return network.Gradient(s, m.tensor(s, m.inputs), m.tensor(s, m.targets), share).Item()
}
