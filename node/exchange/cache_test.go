package exchange

import (
	"bytes"
	"errors"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
)

// TestCacheSendsTheFirstResultOfEveryBatchFirst checks the order of an answer. It also
// changes a batch after a request for it.
func TestCacheSendsTheFirstResultOfEveryBatchFirst(t *testing.T) {
	s := newCache()
	for _, test := range []struct {
		index int
		batch string
		want  string
	}{{2, "ef", "ef"}, {0, "ab", "aebf"}, {0, "ba", "beaf"}, {1, "c", "bceaf"}, {2, "fg", "bcfag"}} {
		var raws [][]byte
		for i := range test.batch {
			raws = append(raws, []byte(test.batch[i:i+1]))
		}
		s.PutBatch(7, test.index, 3, raws)
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

func TestCacheSkipsVerifiedAnnouncements(t *testing.T) {
	s := newCache()
	raws := func() [][]byte { return [][]byte{[]byte("a"), []byte("b"), []byte("c")} }
	if got := s.Unknown(7, raws()); len(got) != 3 {
		t.Errorf("%q for a round that is not held", got)
	}
	s.PutBatch(7, 0, 2, [][]byte{[]byte("a")})
	s.PutBatch(7, 1, 2, [][]byte{[]byte("c"), []byte("d")})
	if got := s.Unknown(7, raws()); len(got) != 1 || string(got[0]) != "b" {
		t.Errorf("got %q; want len(got) == 1 and string(got[0]) == \"b\"", got)
	}
	s.PutBatch(7, 0, 2, [][]byte{[]byte("b")}) // replaces the second announcement
	if got := s.Unknown(7, raws()); len(got) != 1 || string(got[0]) != "a" {
		t.Errorf("after a replacement: got %q", got)
	}
	s.DropRound(7)
	if got := s.Unknown(7, raws()); len(got) != 3 {
		t.Errorf("%q for a dropped round", got)
	}
}

func TestCacheAnswersRequests(t *testing.T) {
	s := newCache()
	s.PutBatch(7, 1, 3, [][]byte{[]byte("x")})
	s.PutManifest([32]byte{9}, []byte("manifest"))
	ask := func(answer func(request []byte) ([]byte, error), request []byte) error {
		_, err := answer(request)
		return err
	}
	round := func(request []byte) ([]byte, error) { return s.answerRound(t.Context(), identity.ID{}, request) }
	model := func(request []byte) ([]byte, error) { return s.answerModel(t.Context(), identity.ID{}, request) }
	digest := [32]byte{9}
	for _, test := range []struct {
		subject string
		err     error
		want    error
	}{
		{"a round that is held", ask(round, []byte{7, 0, 0, 0}), nil},
		{"another round", ask(round, []byte{8, 0, 0, 0}), ErrNotHeld},
		{"a short request for a round", ask(round, []byte{7}), errMalformed},
		{"a model that is held", ask(model, digest[:]), nil},
		{"another model", ask(model, make([]byte, 32)), ErrNotHeld},
		{"a short request for a model", ask(model, nil), errMalformed},
	} {
		if !errors.Is(test.err, test.want) || (test.want == nil) != (test.err == nil) {
			t.Errorf("%s: got %v; want error %v and (test.want == nil) == (test.err == nil)", test.subject, test.err, test.want)
		}
	}
	s.DropRound(7)
	s.DropManifest(digest)
	if len(s.rounds)+len(s.manifests) != 0 {
		t.Error("announcements are left")
	}
}

// TestCacheReportsRequestsForAnOfferedModel checks that the cache reports a request for a missing
// model, and only for that model.
func TestCacheReportsRequestsForAnOfferedModel(t *testing.T) {
	s, offered, other := newCache(), [32]byte{1}, [32]byte{2}
	ask := func(digest [32]byte) error {
		_, err := s.answerModel(t.Context(), identity.ID{}, digest[:])
		return err
	}
	if err := ask([32]byte{}); !errors.Is(err, ErrNotHeld) || s.Offer([32]byte{}) {
		t.Errorf("nothing is offered, and wanted: %v", err)
	}
	if s.Offer(offered) {
		t.Error("wanted before any member asked")
	}
	if err := ask(other); !errors.Is(err, ErrNotHeld) || s.Offer(offered) {
		t.Errorf("wanted when a peer asked for a different one: %v", err)
	}
	if err := ask(offered); !errors.Is(err, ErrNotHeld) || !s.Offer(offered) {
		t.Errorf("not wanted when a peer asked for it: %v", err)
	}
	if s.Offer(other) || s.Offer(offered) {
		t.Error("still wanted after a different one was offered")
	}
}
