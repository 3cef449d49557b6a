package tokens

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

func TestTextLengths(t *testing.T) {
	for _, lengths := range [][]int{{1}, {5}, {1, 1, 1}, {3, 1, 4}} {
		got, err := TextLengths(PackedPositions(lengths))
		if err != nil || !slices.Equal(got, lengths) {
			t.Errorf("%v: %v, %v", lengths, got, err)
		}
	}
	for text, positions := range map[string][]int32{
		"the first is 1, want 0":                            {1, 2},
		"position of token 2 is 3, want 2 (same text)":      {0, 1, 3},
		"position of token 3 is 2, want 1 (same text)":      {0, 1, 0, 2},
		"position of token 1 is -1, want 1 (same text)":     {0, -1},
		"position of token 2 is 1, want 2 (same text) or 0": {0, 1, 1},
	} {
		if _, err := TextLengths(positions); !errors.Is(err, ErrPositions) || !strings.Contains(err.Error(), text) {
			t.Errorf("%v: %v, want %s", positions, err, text)
		}
	}
}
