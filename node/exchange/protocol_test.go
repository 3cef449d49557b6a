package exchange

import (
	"context"
	"errors"
	"testing"

	"github.com/psyche-go/psyche/base/identity"
	"lukechampine.com/blake3"
)

// link is a peer that answers at once. A non-nil answer replaces its own answer.
type link struct {
	handlers map[string]func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)
	instead  []byte
}

func (l *link) Request(ctx context.Context, to identity.ID, protocol string, request []byte, maxResponse int) ([]byte, error) {
	answer, err := l.handlers[protocol](ctx, to, request)
	if err == nil && l.instead != nil {
		answer = l.instead
	}
	if len(answer) > maxResponse {
		return nil, errors.New("too long")
	}
	return answer, err
}

func (l *link) Handle(protocol string, _ int, handle func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)) {
	l.handlers[protocol] = handle
}

// TestAskedAndServed requests everything that Serve answers, and data that does not exist. It
// checks that an invalid answer is refused.
func TestAskedAndServed(t *testing.T) {
	peer := &link{handlers: map[string]func(ctx context.Context, from identity.ID, request []byte) ([]byte, error){}}
	store := NewStore(func([32]byte) {})
	cache, history := store.Cache, store.History
	store.Serve(peer)
	manifest := []byte("manifest")
	digest := blake3.Sum256(manifest)
	ctx, id := t.Context(), identity.ID{1}
	round := func() error {
		raws, err := AskRound(ctx, peer, id, 7)
		if err == nil && (len(raws) != 1 || string(raws[0]) != "x") {
			t.Errorf("announcements %q", raws)
		}
		return err
	}
	model := func() error {
		got, err := AskModel(ctx, peer, id, digest)
		if err == nil && string(got) != string(manifest) {
			t.Errorf("manifest %q", got)
		}
		return err
	}
	var said [32]byte
	results := func() error {
		rounds, answer, err := AskResults(ctx, peer, id, 3, 5, [32]byte{9})
		if err == nil && (len(rounds) != 2 || rounds[1].Step != 5 || rounds[1].Results[0] != testApplied(5, 4, 84).Results[0]) {
			t.Errorf("rounds %+v", rounds)
		}
		said = answer
		return err
	}
	replica := func() error {
		hash, err := AskReplica(ctx, peer, id, 4)
		if err == nil && hash != [32]byte{7} {
			t.Errorf("replica %x", hash)
		}
		return err
	}
	ask := func(subject string, want error) {
		t.Helper()
		for name, err := range map[string]error{"round": round(), "model": model(), "results": results(), "replica": replica()} {
			if !errors.Is(err, want) || (want == nil) != (err == nil) {
				t.Errorf("%s, %s: got %v; want error %v and (want == nil) == (err == nil)", name, subject, err, want)
			}
		}
	}
	ask("nothing is there", ErrNotHeld)
	cache.PutBatch(7, 0, 1, [][]byte{[]byte("x")})
	cache.PutManifest(digest, manifest)
	history.reset(1000, 1000)
	for step := uint32(4); step <= 5; step++ {
		applied := testApplied(step, 4, 84)
		applied.From, applied.Before = [32]byte{9}, [32]byte{byte(step + 2)}
		history.push(applied)
	}
	ask("all is there", nil)
	if want := blake3.Sum256(encodeApplied(history.rounds)); said != want {
		t.Error("the answer has a wrong hash")
	}
	peer.instead = []byte{1, 0, 0}
	ask("something else is sent", errMalformed)
}
