package preprocessed

import (
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/files/data/tokens"
)

// maskNames are the columns that select, with 1 or true, the tokens that are learned. Tokenizers and trainers of Hugging
// Face write them.
var maskNames = [...]string{"attention_mask", "completion_mask", "assistant_masks", "assistant_mask", "loss_mask"}

// attention is the index in maskNames of the mask of padding.
const attention = 0

// masks has the masks of one row. A mask is nil if its column or list is missing.
type masks [len(maskNames)][]int32

// mask removes the labels of tokens that a mask leaves out. It reports whether it created labels
// from the tokens: each row of a file with masks gets labels, because a batch has labels for all
// rows or none.
func (s *Sample) mask(by masks) (made bool, err error) {
	if s.Labels == nil {
		s.Labels, made = slices.Clone(s.Tokens), true
	}
	for i, mask := range by {
		if mask != nil && len(mask) != len(s.Tokens) {
			return made, fmt.Errorf("%w: %d values of %s for %d tokens", ErrInvalid, len(mask), maskNames[i], len(s.Tokens))
		}
		for j, value := range mask {
			switch value {
			case 0:
				s.Labels[j] = IgnoreLabel
			case 1:
			default:
				return made, fmt.Errorf("%w: %s %d is %d, want 0 or 1; pack texts with sequence_lengths", ErrInvalid, maskNames[i], j, value)
			}
		}
	}
	return made, nil
}

// separate excludes padding from the attention of the tokens after it. Padding at the start becomes
// a text. Other padding must end its text.
func (s *Sample) separate(mask []int32) error {
	if s.Positions == nil {
		lengths := []int{len(s.Tokens)}
		if start := slices.Index(mask, 1); start > 0 {
			lengths = []int{start, len(s.Tokens) - start}
		}
		s.Positions = tokens.PackedPositions(lengths)
	}
	for i := 1; i < len(mask); i++ {
		if mask[i] == 0 || mask[i-1] == 1 {
			continue
		}
		if s.Positions[i] > 0 {
			return fmt.Errorf("%w: attention_mask %d is 1 after padding in the same text, want padding at the start or the end; pack texts with sequence_lengths", ErrInvalid, i)
		}
		s.Labels[i] = IgnoreLabel // only padding predicts it
	}
	return nil
}
