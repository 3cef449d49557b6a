package exchange

import (
	"bytes"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/node/tally"
	"pgregory.net/rapid"
)

// TestHistoryIsBounded pushes epochs of random shapes. It checks that the kept rounds have no gaps,
// consist of whole epochs and do not exceed the limits. The running epoch is dropped last, and only
// kept results are dropped.
func TestHistoryIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := &History{model: rapid.Uint64Range(0, 60).Draw(t, "model"), memory: rapid.Uint64Range(0, 90).Draw(t, "memory")}
		held := map[tally.Commitment]bool{}
		starts := map[uint32]bool{}
		step := uint32(1)
		for range rapid.IntRange(1, 6).Draw(t, "epochs") {
			step += rapid.Uint32Range(0, 8).Draw(t, "gap") / 8
			start := step
			starts[start] = true
			epoch := uint64(0) // bytes
			for range rapid.IntRange(1, 4).Draw(t, "rounds") {
				round := testApplied(step, start, rapid.SliceOfN(rapid.Uint32Range(0, 12), 0, 3).Draw(t, "sizes")...)
				for _, r := range round.Results {
					held[r.Commitment] = true
				}
				for _, hash := range h.push(round) {
					if !held[hash] {
						t.Fatalf("%x was dropped twice or never kept", hash[:2])
					}
					delete(held, hash)
				}
				epoch += TotalSize([]AppliedRound{round})
				step++
			}
			total, epochs := TotalSize(h.rounds), h.epochs()
			if total > h.memory || epochs > 1 && total > h.model || epochs > historyEpochs {
				t.Fatalf("%d bytes of %d epochs are kept", total, epochs)
			}
			if epochs == 0 && epoch <= h.memory {
				t.Fatalf("the running epoch of %d bytes is not kept", epoch)
			}
			for i, round := range h.rounds {
				if i == 0 && !starts[round.Step] || i > 0 && round.Step != h.rounds[i-1].Step+1 {
					t.Fatalf("round %d is of step %d", i, round.Step)
				}
			}
			h.eachBlob(func(hash [32]byte) {
				if !held[hash] {
					t.Fatalf("%x is kept although it was dropped", hash[:2])
				}
			})
		}
		if count := len(h.reset(9, 12)); count != len(held) || len(h.rounds) != 0 || h.model != 9 || h.memory != 12 {
			t.Fatalf("reset drops %d of %d results", count, len(held))
		}
	})
}

func TestHistoryAnswers(t *testing.T) {
	h := &History{model: 1000, memory: 1000}
	first, second := strings.Repeat("11", 32), strings.Repeat("22", 32)
	ask := func(request string) ([]byte, error) {
		b, err := hex.DecodeString(request)
		if err != nil {
			t.Fatal(err)
		}
		return h.answer(t.Context(), identity.ID{}, b)
	}
	if _, err := ask("0000000001000000" + first); !errors.Is(err, ErrNotHeld) {
		t.Errorf("an empty history: %v", err)
	}
	for step := uint32(4); step <= 9; step++ {
		round := testApplied(step, 4+(step-4)/3*3, 10)
		round.From = [32]byte(bytes.Repeat([]byte{byte(0x11 * (1 + (step-4)/3))}, 32))
		h.push(round)
	}
	for request, want := range map[string]error{
		"0300000009000000" + first:        nil, // all rounds
		"0300000006000000" + first:        nil,
		"0600000009000000" + second:       nil,
		"0700000009000000" + first:        nil,        // the model within an epoch is not checked
		"0300000009000000" + second:       ErrNotHeld, // the run had a different model after step 3
		"0600000009000000" + first:        ErrNotHeld,
		"0200000009000000" + first:        ErrNotHeld, // before the first round
		"030000000a000000" + first:        ErrNotHeld, // after the last round
		"0900000009000000" + first:        ErrNotHeld,
		"0900000003000000" + first:        ErrNotHeld,
		"ffffffffffffffff" + first:        ErrNotHeld,
		"ffffffff00000000" + first:        ErrNotHeld,
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
			if err != nil || uint32(len(rounds)) != until-after || rounds[0].Results[0].Commitment[0] != byte(after+1) {
				t.Errorf("request %s: %+v, %v", request, rounds, err)
			}
		}
	}
}

// TestHistorySinceAnIntermediateCheckpoint checks that a running epoch that is too large is kept
// from its newest intermediate checkpoint on. If that checkpoint came too late, the epoch is kept
// from the next one on.
func TestHistorySinceAnIntermediateCheckpoint(t *testing.T) {
	h := &History{model: 1000, memory: 40}
	var kept []uint32
	for step := uint32(4); step <= 20; step++ {
		h.push(testApplied(step, 4, 10))
		if step == 10 || step == 13 {
			h.Committed(step)
		}
		first := uint32(0)
		if len(h.rounds) > 0 {
			first = h.rounds[0].Step
		}
		kept = append(kept, first)
	}
	want := []uint32{
		4, 4, 4, 4, 0, 0, 0, // no room for the fifth round, and no intermediate checkpoint
		11, 11, 11, 11, // since the intermediate checkpoint of step 10
		14, 14, 14, // since the intermediate checkpoint of step 13, because there is no more room
		0, 0, 0, // no room for the fifth round after it
	}
	if !slices.Equal(kept, want) {
		t.Errorf("kept since %v, want %v", kept, want)
	}
	h.Committed(20)
	h.push(testApplied(21, 4, 10))
	if len(h.rounds) != 1 {
		t.Errorf("%d rounds are kept after an intermediate checkpoint", len(h.rounds))
	}
	h.Committed(0) // the next epoch
	h.push(testApplied(22, 22, 10))
	if len(h.rounds) != 2 {
		t.Errorf("%d rounds remain for two epochs", len(h.rounds))
	}
}
