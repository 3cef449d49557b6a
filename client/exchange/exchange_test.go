package client

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/wire"
)

// TestAnnouncementsGolden fixes the bytes of the round protocol.
func TestAnnouncementsGolden(t *testing.T) {
	const want = "0300" + "0300" + "616263" + "0000" + "0100" + "64"
	packed := encodeAnnouncements([][]byte{[]byte("abc"), {}, []byte("d")})
	if got := hex.EncodeToString(packed); got != want {
		t.Errorf("got %s", got)
	}
	raws, err := decodeAnnouncements(packed)
	if err != nil || len(raws) != 3 || string(raws[0]) != "abc" || len(raws[1]) != 0 || string(raws[2]) != "d" {
		t.Errorf("got %q, %v", raws, err)
	}
}

// TestAnnouncementsFit checks that the largest answer fits the bound of the request.
func TestAnnouncementsFit(t *testing.T) {
	if wire.MaxAnnouncementSize > maxAnnouncementSize {
		t.Fatalf("an announcement may have %d bytes, the protocol allows %d", wire.MaxAnnouncementSize, maxAnnouncementSize)
	}
	full := make([][]byte, maxAnnouncements+10)
	for i := range full {
		full[i] = make([]byte, maxAnnouncementSize)
	}
	packed := encodeAnnouncements(full)
	if len(packed) != maxRoundResponse {
		t.Errorf("%d bytes, bound %d", len(packed), maxRoundResponse)
	}
	if raws, err := decodeAnnouncements(packed); err != nil || len(raws) != maxAnnouncements {
		t.Errorf("%d announcements, %v", len(raws), err)
	}
}

func TestAnnouncementsMalformed(t *testing.T) {
	for name, text := range map[string]string{
		"empty":               "",
		"half a count":        "01",
		"count too high":      "ffff",
		"missing":             "0100",
		"size beyond the end": "01000500616263",
		"size beyond bounds":  "0100ffff" + hex.EncodeToString(make([]byte, 1<<16)),
		"bytes left":          "010001006162",
	} {
		t.Run(name, func(t *testing.T) {
			b, err := hex.DecodeString(text)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := decodeAnnouncements(b); !errors.Is(err, errMalformed) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestShelfAnswersWithTheFirstOfEveryBatchBeforeOthers also changes a batch after it was
// asked for.
func TestShelfAnswersWithTheFirstOfEveryBatchBeforeOthers(t *testing.T) {
	s := newShelf()
	for _, test := range []struct {
		index int
		batch string
		want  string
	}{{2, "ef", "ef"}, {0, "ab", "aebf"}, {0, "ba", "beaf"}, {1, "c", "bceaf"}, {2, "fg", "bcfag"}} {
		var raws [][]byte
		for i := range test.batch {
			raws = append(raws, []byte(test.batch[i:i+1]))
		}
		s.putBatch(7, test.index, 3, raws)
		answer, err := s.answerRound(t.Context(), identity.ID{}, []byte{7, 0, 0, 0})
		if err != nil {
			t.Fatal(err)
		}
		all, err := decodeAnnouncements(answer)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(bytes.Join(all, nil)); got != test.want {
			t.Errorf("after batch %d was %s: %s, want %s", test.index, test.batch, got, test.want)
		}
	}
}

func TestShelfKnowsWhatItHolds(t *testing.T) {
	s := newShelf()
	raws := func() [][]byte { return [][]byte{[]byte("a"), []byte("b"), []byte("c")} }
	if got := s.unknown(7, raws()); len(got) != 3 {
		t.Errorf("%q of a round that is not held", got)
	}
	s.putBatch(7, 0, 2, [][]byte{[]byte("a")})
	s.putBatch(7, 1, 2, [][]byte{[]byte("c"), []byte("d")})
	if got := s.unknown(7, raws()); len(got) != 1 || string(got[0]) != "b" {
		t.Errorf("got %q", got)
	}
	s.putBatch(7, 0, 2, [][]byte{[]byte("b")}) // in the place of the other
	if got := s.unknown(7, raws()); len(got) != 1 || string(got[0]) != "a" {
		t.Errorf("after one displaced another: got %q", got)
	}
	s.dropRound(7)
	if got := s.unknown(7, raws()); len(got) != 3 {
		t.Errorf("%q of a round that was dropped", got)
	}
}

func FuzzDecodeAnnouncements(f *testing.F) {
	f.Add([]byte{})
	f.Add(encodeAnnouncements(nil))
	f.Add(encodeAnnouncements([][]byte{[]byte("abc"), {}, []byte("d")}))
	f.Add([]byte{1, 0, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		raws, err := decodeAnnouncements(b)
		if err == nil && !bytes.Equal(encodeAnnouncements(raws), b) {
			t.Error("two encodings of one value")
		}
	})
}

func TestShelf(t *testing.T) {
	s := newShelf()
	s.putBatch(7, 1, 3, [][]byte{[]byte("x")})
	s.putManifest([32]byte{9}, []byte("manifest"))
	ask := func(answer func(request []byte) ([]byte, error), request []byte) error {
		_, err := answer(request)
		return err
	}
	round := func(request []byte) ([]byte, error) { return s.answerRound(t.Context(), identity.ID{}, request) }
	model := func(request []byte) ([]byte, error) { return s.answerModel(t.Context(), identity.ID{}, request) }
	digest := [32]byte{9}
	for _, test := range []struct {
		what string
		err  error
		want error
	}{
		{"a round that is held", ask(round, []byte{7, 0, 0, 0}), nil},
		{"another round", ask(round, []byte{8, 0, 0, 0}), errNotHeld},
		{"a short request for a round", ask(round, []byte{7}), errMalformed},
		{"a model that is held", ask(model, digest[:]), nil},
		{"another model", ask(model, make([]byte, 32)), errNotHeld},
		{"a short request for a model", ask(model, nil), errMalformed},
	} {
		if !errors.Is(test.err, test.want) || (test.want == nil) != (test.err == nil) {
			t.Errorf("%s: %v", test.what, test.err)
		}
	}
	s.dropRound(7)
	s.dropManifest(digest)
	if len(s.rounds)+len(s.manifests) != 0 {
		t.Error("something is left")
	}
}

// testRound is a round of three members with a batch each.
func testRound() (coordinator.Round, coordinator.Config) {
	round := coordinator.Round{Step: 5, Seed: 42, DataIndex: 100, BatchSize: 12, WitnessesNeeded: 2, WitnessesElected: 3}
	for i := range 3 {
		round.Members = append(round.Members, coordinator.ClientID(testKey(i).ID()))
	}
	return round, fakeConfig(3)
}

func announcement(s *slot, blob commitment, replica [32]byte) wire.ResultAnnouncement {
	return wire.ResultAnnouncement{RunID: testRun, Step: 5, Batch: s.batch, Blob: blob, Size: 1, Replica: replica}
}

func TestHear(t *testing.T) {
	round, config := testRound()
	r := newResults(round, round.Assignments(config))
	s := &r.slots[0]
	owner, other := identity.ID(s.owner), identity.ID(r.slots[1].owner)
	hear := func(author identity.ID, a wire.ResultAnnouncement) error { return r.hear(author, a, []byte{a.Blob[0]}) }

	elsewhere := announcement(s, hash(1), [32]byte{})
	elsewhere.Batch = assign.BatchID{Start: s.batch.Start, End: s.batch.End + 1}
	for _, test := range []struct {
		what   string
		author identity.ID
		a      wire.ResultAnnouncement
		want   error
	}{
		{"a batch of other bounds", owner, elsewhere, errUnknownBatch},
		{"another client's batch", other, announcement(s, hash(1), [32]byte{}), errNotAssignee},
		{"the first", owner, announcement(s, hash(1), [32]byte{}), nil},
		{"the same", owner, announcement(s, hash(1), [32]byte{}), errKnownResult},
		{"the second", owner, announcement(s, hash(2), [32]byte{}), errEquivocation},
		{"the third", owner, announcement(s, hash(3), [32]byte{}), errTooManyBefore},
	} {
		if err := hear(test.author, test.a); !errors.Is(err, test.want) || (test.want == nil) != (err == nil) {
			t.Errorf("%s: %v", test.what, err)
		}
	}
	// When witnesses hold the third, it is heard after all.
	list := make([]commitment, len(r.slots))
	list[0] = hash(3)
	var owners []coordinator.ClientID
	for _, s := range r.slots {
		owners = append(owners, s.owner)
	}
	r.round.Witnesses = proofs(round.Seed, owners, list, list)
	if err := hear(owner, announcement(s, hash(3), [32]byte{})); !errors.Is(err, errTooManyBefore) {
		t.Errorf("before the round is final: %v", err)
	}
	r.final = true
	if err := hear(owner, announcement(s, hash(3), [32]byte{})); !errors.Is(err, errEquivocation) {
		t.Errorf("in a final round: %v", err)
	}
	if o := r.decide(); len(o.counted) != 1 || o.counted[0].commitment != hash(3) || o.missing != 1 || len(o.lost) != 2 {
		t.Errorf("outcome %+v", o)
	}
	s.candidates[2].state = held
	if o := r.decide(); o.missing != 0 || o.sources[0] != s.candidates[2] {
		t.Errorf("outcome %+v", o)
	}
}

// TestHearWhereVotesWent: a trainer sends so many results that no two witnesses hold the
// same, and this client holds none of theirs. Only when it hears of those does it know that
// none counts.
func TestHearWhereVotesWent(t *testing.T) {
	round, config := testRound()
	r := newResults(round, round.Assignments(config))
	s := &r.slots[0]
	owner := identity.ID(s.owner)
	var owners []coordinator.ClientID
	for _, s := range r.slots {
		owners = append(owners, s.owner)
	}
	only := func(c commitment) []commitment { return append([]commitment{c}, make([]commitment, len(r.slots)-1)...) }
	for _, c := range []commitment{hash(1), hash(2)} {
		_ = r.hear(owner, announcement(s, c, [32]byte{}), nil)
	}
	r.round.Witnesses = proofs(round.Seed, owners, only(hash(3)), only(hash(4)), only(hash(5)))
	r.final = true
	if o := r.decide(); o.missing != 1 {
		t.Fatalf("before the witnesses' results are known: %+v", o)
	}
	for _, c := range []commitment{hash(3), hash(4), hash(5)} {
		if err := r.hear(owner, announcement(s, c, [32]byte{}), nil); !errors.Is(err, errEquivocation) {
			t.Errorf("a result that a witness holds: %v", err)
		}
	}
	if err := r.hear(owner, announcement(s, hash(6), [32]byte{}), nil); !errors.Is(err, errTooManyBefore) {
		t.Errorf("a result that no witness holds: %v", err)
	}
	if o := r.decide(); o.missing != 0 || len(o.counted) != 0 || len(o.lost) != len(r.slots) {
		t.Errorf("outcome %+v", o)
	}
}

// TestWarmingResultsDoNotCount: what a trainer with a young optimizer sends is witnessed
// like any other result, and not applied.
func TestWarmingResultsDoNotCount(t *testing.T) {
	round, config := testRound()
	member := round.Assignments(config)[1].Member
	round.Warming[member/8] |= 1 << (member % 8)
	r := newResults(round, round.Assignments(config))
	list := []commitment{hash(1), hash(2), hash(3)}
	var owners []coordinator.ClientID
	for i := range r.slots {
		s := &r.slots[i]
		owners = append(owners, s.owner)
		if err := r.hear(identity.ID(s.owner), announcement(s, list[i], [32]byte{}), nil); err != nil {
			t.Fatal(err)
		}
		if i != 1 { // nobody needs to have fetched it
			s.candidates[0].state = held
		}
	}
	r.round.Witnesses = proofs(round.Seed, owners, list, list)
	r.final = true
	o := r.decide()
	if o.missing != 0 || len(o.counted) != 2 || o.counted[0].commitment != hash(1) || o.counted[1].commitment != hash(3) {
		t.Errorf("outcome %+v", o)
	}
	if len(o.lost) != 1 || o.lost[0].owner != round.Members[member] {
		t.Errorf("lost %+v", o.lost)
	}
}

// TestHeldIsIndependentOfOrder holds two results of one batch: the same one is proved,
// whichever came first, and one of another replica never.
func TestHeldIsIndependentOfOrder(t *testing.T) {
	mine, foreign := [32]byte{1}, [32]byte{2}
	var roots [2][32]byte
	for i, order := range [][]commitment{{hash(1), hash(2)}, {hash(2), hash(1)}} {
		round, config := testRound()
		r := newResults(round, round.Assignments(config))
		s := &r.slots[0]
		for _, c := range order {
			if err := r.hear(identity.ID(s.owner), announcement(s, c, mine), nil); err != nil && !errors.Is(err, errEquivocation) {
				t.Fatal(err)
			}
		}
		if err := r.hear(identity.ID(r.slots[1].owner), announcement(&r.slots[1], hash(0), foreign), nil); err != nil {
			t.Fatal(err)
		}
		for j := range r.slots {
			for _, c := range r.slots[j].candidates {
				c.state = held
			}
		}
		if r.heldOf(s) != nil {
			t.Error("held although the own replica is not known yet")
		}
		r.begin(mine)
		proof, count := r.witness()
		if count != 1 || r.heldOf(&r.slots[1]) != nil || r.heldOf(s).commitment != hash(1) {
			t.Errorf("%d held, %x", count, r.heldOf(s).commitment)
		}
		roots[i] = proof.CommitmentsRoot
	}
	if roots[0] != roots[1] {
		t.Error("the root depends on the order of arrival")
	}
}
