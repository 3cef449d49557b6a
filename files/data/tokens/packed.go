package tokens

import (
	"errors"
	"fmt"
)

// ErrPositions means that positions do not belong to consecutive packed texts.
var ErrPositions = errors.New("invalid positions")

// TextLengths returns the number of tokens of each of the texts that are packed into one sequence.
// Positions count up from 0 within a text, and restart at 0 with the next text. If a position does
// neither, TextLengths returns an error that names it and wraps ErrPositions.
func TextLengths(positions []int32) ([]int, error) {
	var lengths []int
	for i, position := range positions {
		switch last := len(lengths) - 1; {
		case position == 0:
			lengths = append(lengths, 1)
		case last >= 0 && int(position) == lengths[last]:
			lengths[last]++
		case last < 0:
			return nil, fmt.Errorf("%w: the first position is %d, want 0", ErrPositions, position)
		default:
			return nil, fmt.Errorf("%w: the position of token %d is %d, want %d (same text) or 0 (next text)", ErrPositions, i, position, lengths[last])
		}
	}
	return lengths, nil
}

// PackedPositions returns the positions of the tokens of consecutive texts with those lengths.
func PackedPositions(lengths []int) []int32 {
	var positions []int32
	for _, length := range lengths {
		for i := range length {
			positions = append(positions, int32(i))
		}
	}
	return positions
}
