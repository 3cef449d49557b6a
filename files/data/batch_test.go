package data

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
)

// TestHashOfABatch pins the hashed bytes.
func TestHashOfABatch(t *testing.T) {
	tokens := [][]int32{{1, 258}, {}, {65536}}
	raw := func(text string) [32]byte {
		b, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return sha256.Sum256(b)
	}
	const (
		first, second, third = "02000000" + "01000000" + "02010000", "00000000", "01000000" + "00000100"
		labelsOfFirst        = "ffffffff" + "02000000" + "9cffffff" + "02010000"
		labelsOfThird        = "ffffffff" + third
		positionsOfFirst     = "feffffff" + "02000000" + "00000000" + "01000000"
		positionsOfThird     = "feffffff" + "01000000" + "00000000"
		noLabels, noPlaces   = "ffffffff" + "00000000", "feffffff" + "00000000"
	)
	withLabels := [][]int32{{IgnoreLabel, 258}, {}, {65536}}
	withPositions := [][]int32{{0, 1}, {}, {0}}
	for name, test := range map[string]struct {
		batch Batch
		want  string
	}{
		"tokens":           {Batch{Sequences: tokens}, first + second + third},
		"of another place": {Batch{ID: assign.BatchID{Start: 5, End: 8}, Sequences: tokens}, first + second + third},
		"labels":           {Batch{Sequences: tokens, Labels: withLabels}, first + labelsOfFirst + second + noLabels + third + labelsOfThird},
		"positions":        {Batch{Sequences: tokens, Positions: withPositions}, first + positionsOfFirst + second + noPlaces + third + positionsOfThird},
		"labels and positions": {
			Batch{Sequences: tokens, Labels: withLabels, Positions: withPositions},
			first + labelsOfFirst + positionsOfFirst + second + noLabels + noPlaces + third + labelsOfThird + positionsOfThird,
		},
		"nothing": {Batch{}, ""},
	} {
		if got := test.batch.Hash(); got != raw(test.want) {
			t.Errorf("%s: got %x; want raw(test.want)", name, got)
		}
	}
}

func TestReceiptsProveContradictions(t *testing.T) {
	key, other := identity.FromSeed([identity.SeedSize]byte{1}), identity.FromSeed([identity.SeedSize]byte{2})
	run, batch := [32]byte{3}, assign.BatchID{Start: 4, End: 9}
	first := SignReceipt(key, run, []assign.BatchID{batch}, [32]byte{5})
	forged := SignReceipt(other, run, []assign.BatchID{batch}, [32]byte{6})
	forged.Server = key.ID()
	for name, test := range map[string]struct {
		receipt Receipt
		verify  bool
		want    bool
	}{
		"the same":       {first, true, false},
		"other tokens":   {SignReceipt(key, run, []assign.BatchID{batch}, [32]byte{6}), true, true},
		"another batch":  {SignReceipt(key, run, []assign.BatchID{{Start: 4, End: 8}}, [32]byte{6}), true, false},
		"another run":    {SignReceipt(key, [32]byte{4}, []assign.BatchID{batch}, [32]byte{6}), true, false},
		"another server": {SignReceipt(other, run, []assign.BatchID{batch}, [32]byte{6}), true, false},
		"a forged one":   {forged, false, false},
	} {
		if verify := test.receipt.Verify(); verify != test.verify {
			t.Errorf("%s verifies: %v", name, verify)
		}
		if got := first.Contradicts(test.receipt); got != test.want || test.receipt.Contradicts(first) != test.want {
			t.Errorf("%s contradicts: %v", name, got)
		}
	}
}
