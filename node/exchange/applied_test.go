package exchange

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/tally"
)

func testApplied(step, epochStart uint32, sizes ...uint32) AppliedRound {
	round := AppliedRound{Step: step, EpochStart: epochStart, ColdSteps: 2}
	for i, size := range sizes {
		at := uint64(i)
		round.Results = append(round.Results, AppliedResult{
			Counted: tally.Counted{Batch: assign.BatchID{Start: 4 * at, End: 4*at + 4}, Commitment: tally.Commitment{byte(step), byte(i)}, Vote: assign.FullVote},
			Owner:   coordinator.ClientID{0xaa, byte(i)}, Size: size,
		})
	}
	return round
}

// TestAppliedGolden checks that the bytes of the results protocol do not change.
func TestAppliedGolden(t *testing.T) {
	zeros := func(n int) string { return strings.Repeat("00", n) }
	want := "04000000" + "02000000" + "0100" +
		zeros(8) + "0400000000000000" + "aa00" + zeros(30) + "0500" + zeros(30) + "54000000" + "10" +
		"04000000" + "02000000" + "0000"
	rounds := []AppliedRound{testApplied(5, 4, 84), testApplied(6, 4)}
	packed := encodeApplied(rounds)
	if got := hex.EncodeToString(packed); got != want {
		t.Errorf("got %s; want %s", got, want)
	}
	got, err := decodeApplied(packed, 4, 6)
	if err != nil || len(got) != 2 || got[0].Step != 5 || got[0].Results[0] != rounds[0].Results[0] || got[1].Step != 6 {
		t.Errorf("got %+v, %v; want nil error and len(got) == 2 and got[0].Step == 5 and got[0].Results[0] == rounds[0].Results[0] and got[1].Step == 6", got, err)
	}
}

func TestAppliedMalformed(t *testing.T) {
	good := encodeApplied([]AppliedRound{testApplied(5, 4, 84, 85)})
	with := func(at int, b byte) []byte {
		bad := slices.Clone(good)
		bad[at] = b
		return bad
	}
	for name, test := range map[string]struct {
		b            []byte
		after, until uint32
	}{
		"empty":                   {nil, 4, 5},
		"a step is missing":       {good, 4, 6},
		"a result is missing":     {good[:len(good)-1], 4, 5},
		"bytes left":              {append(slices.Clone(good), 0), 4, 5},
		"too many results":        {with(9, 0xff), 4, 5},
		"an epoch of later steps": {with(0, 6), 4, 5},
		"an empty batch":          {with(appliedRoundSize+8, 0), 4, 5},
		"no vote":                 {with(appliedRoundSize+appliedResultSize-1, 0), 4, 5},
		"too large a vote":        {with(appliedRoundSize+appliedResultSize-1, 17), 4, 5},
		"batches out of order":    {with(appliedRoundSize+8, 5), 4, 5},
		"no steps":                {good, 5, 5},
		"steps backwards":         {good, 6, 5},
		"too many steps":          {good, 0, math.MaxUint32},
		"too long":                {make([]byte, maxResultsResponse+1), 0, maxResultsRounds},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := decodeApplied(test.b, test.after, test.until); !errors.Is(err, errMalformed) {
				t.Errorf("got %v; want error errMalformed", err)
			}
		})
	}
}

func FuzzDecodeApplied(f *testing.F) {
	f.Add([]byte{}, uint32(0), uint32(1))
	f.Add(encodeApplied([]AppliedRound{testApplied(5, 4, 84, 85), testApplied(6, 4)}), uint32(4), uint32(6))
	f.Add(make([]byte, 3*appliedRoundSize), uint32(7), uint32(10))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, uint32(math.MaxUint32-1), uint32(math.MaxUint32))
	fuzztest.Run(f, func(t *testing.T, b []byte, after, until uint32) {
		rounds, err := decodeApplied(b, after, until)
		if err == nil && !bytes.Equal(encodeApplied(rounds), b) {
			t.Error("two encodings of one value")
		}
	})
}
