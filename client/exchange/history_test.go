package exchange

import (
	"bytes"
	"encoding/hex"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
	"pgregory.net/rapid"
)

func testApplied(step, epochStart uint32, sizes ...uint32) appliedRound {
	round := appliedRound{step: step, epochStart: epochStart, coldSteps: 2}
	for i, size := range sizes {
		at := uint64(i)
		round.results = append(round.results, appliedResult{
			countedResult{assign.BatchID{Start: 4 * at, End: 4*at + 4}, commitment{byte(step), byte(i)}}, coordinator.ClientID{0xaa, byte(i)}, size,
		})
	}
	return round
}

// TestAppliedGolden fixes the bytes of the results protocol.
func TestAppliedGolden(t *testing.T) {
	zeros := func(n int) string { return strings.Repeat("00", n) }
	want := "04000000" + "02000000" + "0100" +
		zeros(8) + "0400000000000000" + "aa00" + zeros(30) + "0500" + zeros(30) + "54000000" +
		"04000000" + "02000000" + "0000"
	rounds := []appliedRound{testApplied(5, 4, 84), testApplied(6, 4)}
	packed := encodeApplied(rounds)
	if got := hex.EncodeToString(packed); got != want {
		t.Errorf("got %s", got)
	}
	got, err := decodeApplied(packed, 4, 6)
	if err != nil || len(got) != 2 || got[0].step != 5 || got[0].results[0] != rounds[0].results[0] || got[1].step != 6 {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestAppliedMalformed(t *testing.T) {
	good := encodeApplied([]appliedRound{testApplied(5, 4, 84, 85)})
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
		"batches out of order":    {with(appliedRoundSize+8, 5), 4, 5},
		"no steps":                {good, 5, 5},
		"steps backwards":         {good, 6, 5},
		"too many steps":          {good, 0, math.MaxUint32},
		"too long":                {make([]byte, maxResultsResponse+1), 0, maxResultsRounds},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := decodeApplied(test.b, test.after, test.until); !errors.Is(err, errMalformed) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func FuzzDecodeApplied(f *testing.F) {
	f.Add([]byte{}, uint32(0), uint32(1))
	f.Add(encodeApplied([]appliedRound{testApplied(5, 4, 84, 85), testApplied(6, 4)}), uint32(4), uint32(6))
	f.Add(make([]byte, 3*appliedRoundSize), uint32(7), uint32(10))
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff}, uint32(math.MaxUint32-1), uint32(math.MaxUint32))
	f.Fuzz(func(t *testing.T, b []byte, after, until uint32) {
		rounds, err := decodeApplied(b, after, until)
		if err == nil && !bytes.Equal(encodeApplied(rounds), b) {
			t.Error("two encodings of one value")
		}
	})
}

// TestHistoryIsBounded pushes epochs of any shape: what is kept has no gap, consists of
// whole epochs, is at most as large as allowed, and what is dropped was kept.
func TestHistoryIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &history{limit: rapid.Uint64Range(0, 60).Draw(t, "limit")}
		held := map[commitment]bool{}
		starts := map[uint32]bool{}
		step := uint32(1)
		for range rapid.IntRange(1, 6).Draw(t, "epochs") {
			step += rapid.Uint32Range(0, 8).Draw(t, "gap") / 8
			start := step
			starts[start] = true
			for range rapid.IntRange(1, 4).Draw(t, "rounds") {
				round := testApplied(step, start, rapid.SliceOfN(rapid.Uint32Range(0, 12), 0, 3).Draw(t, "sizes")...)
				for _, r := range round.results {
					held[r.commitment] = true
				}
				for _, hash := range h.push(round) {
					if !held[hash] {
						t.Fatalf("%x is dropped twice or was never kept", hash[:2])
					}
					delete(held, hash)
				}
				step++
			}
			if totalSize(h.rounds) > h.limit || h.epochs() > historyEpochs {
				t.Fatalf("%d bytes of %d epochs are kept", totalSize(h.rounds), h.epochs())
			}
			for i, round := range h.rounds {
				if i == 0 && !starts[round.step] || i > 0 && round.step != h.rounds[i-1].step+1 {
					t.Fatalf("round %d is of step %d", i, round.step)
				}
			}
			h.eachBlob(func(hash [32]byte) {
				if !held[hash] {
					t.Fatalf("%x is kept and was dropped", hash[:2])
				}
			})
		}
		if count := len(h.reset(9)); count != len(held) || len(h.rounds) != 0 || h.limit != 9 {
			t.Fatalf("reset drops %d of %d results", count, len(held))
		}
	})
}

func TestHistoryAnswers(t *testing.T) {
	h := &history{limit: 1000}
	first, second := strings.Repeat("11", 32), strings.Repeat("22", 32)
	ask := func(request string) ([]byte, error) {
		b, err := hex.DecodeString(request)
		if err != nil {
			t.Fatal(err)
		}
		return h.answer(t.Context(), identity.ID{}, b)
	}
	if _, err := ask("0000000001000000" + first); !errors.Is(err, errNotHeld) {
		t.Errorf("an empty history: %v", err)
	}
	for step := uint32(4); step <= 9; step++ {
		round := testApplied(step, 4+(step-4)/3*3, 10)
		round.from = [32]byte(bytes.Repeat([]byte{byte(0x11 * (1 + (step-4)/3))}, 32))
		h.push(round)
	}
	for request, want := range map[string]error{
		"0300000009000000" + first:        nil, // everything
		"0300000006000000" + first:        nil,
		"0600000009000000" + second:       nil,
		"0700000009000000" + first:        nil,        // within an epoch nothing is known of the model
		"0300000009000000" + second:       errNotHeld, // the run was elsewhere after step 3
		"0600000009000000" + first:        errNotHeld,
		"0200000009000000" + first:        errNotHeld, // before the first
		"030000000a000000" + first:        errNotHeld, // after the last
		"0900000009000000" + first:        errNotHeld,
		"0900000003000000" + first:        errNotHeld,
		"ffffffffffffffff" + first:        errNotHeld,
		"ffffffff00000000" + first:        errNotHeld,
		"":                                errMalformed,
		"0300000009000000":                errMalformed,
		"0300000009000000" + first + "00": errMalformed,
	} {
		answer, err := ask(request)
		if !errors.Is(err, want) || (want == nil) != (err == nil) {
			t.Errorf("request %s: %v", request, err)
		}
		if want == nil {
			after, until := uint32(request[1]-'0'), uint32(request[9]-'0')
			rounds, err := decodeApplied(answer, after, until)
			if err != nil || uint32(len(rounds)) != until-after || rounds[0].results[0].commitment[0] != byte(after+1) {
				t.Errorf("request %s: %+v, %v", request, rounds, err)
			}
		}
	}
}
