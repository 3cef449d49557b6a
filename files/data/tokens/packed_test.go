package tokens

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
)

func TestTextLengths(t *testing.T) {
	for _, lengths := range [][]int{{1}, {5}, {1, 1, 1}, {3, 1, 4}} {
		got, err := TextLengths(PackedPositions(lengths))
		if err != nil || !slices.Equal(got, lengths) {
			t.Errorf("%v: got %v, %v; want nil error and %v", lengths, got, err, lengths)
		}
	}
	for _, positions := range [][]int32{{1, 2}, {0, 1, 3}, {0, 1, 0, 2}, {0, -1}, {0, 1, 1}} {
		_, err := TextLengths(positions)
		if !errors.Is(err, ErrPositions) {
			t.Errorf("%v: %v, want ErrPositions", positions, err)
		}
		golden.Message(t, fmt.Sprint(positions), err)
	}
}
