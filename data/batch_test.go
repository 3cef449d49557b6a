package data

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/psyche-go/psyche/assign"
)

// TestHashOfABatch pins what is hashed, byte for byte.
func TestHashOfABatch(t *testing.T) {
	tokens := [][]int32{{1, 258}, {}, {65536}}
	raw := func(text string) [32]byte {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return sha256.Sum256(b)
	}
	const plain = "02000000" + "01000000" + "02010000" + "00000000" + "01000000" + "00000100"
	const labels = "ffffffff" + "02000000" + "9cffffff" + "02010000" + "00000000" + "01000000" + "00000100"
	const positions = "feffffff" + "02000000" + "00000000" + "01000000" + "00000000" + "01000000" + "00000000"
	withLabels := [][]int32{{IgnoreLabel, 258}, {}, {65536}}
	withPositions := [][]int32{{0, 1}, {}, {0}}
	for name, test := range map[string]struct {
		batch Batch
		want  string
	}{
		"tokens":                {Batch{Sequences: tokens}, plain},
		"of another place":      {Batch{ID: assign.BatchID{Start: 5, End: 8}, Sequences: tokens}, plain},
		"labels":                {Batch{Sequences: tokens, Labels: withLabels}, plain + labels},
		"positions":             {Batch{Sequences: tokens, Positions: withPositions}, plain + positions},
		"labels and positions":  {Batch{Sequences: tokens, Labels: withLabels, Positions: withPositions}, plain + labels + positions},
		"nothing":               {Batch{}, ""},
		"labels as more tokens": {Batch{Sequences: append(tokens, withLabels...)}, plain + labels[8:]},
	} {
		if got := test.batch.Hash(); got != raw(test.want) {
			t.Errorf("%s: %x", name, got)
		}
	}
}
