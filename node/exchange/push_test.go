package exchange

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/identity"
)

// TestPushed checks that a result can be pushed to a peer, and that a payload that is too long, cut
// or empty is refused.
func TestPushed(t *testing.T) {
	peer := &link{handlers: map[string]func(ctx context.Context, from identity.ID, request []byte) ([]byte, error){}}
	refusal := errors.New("not wanted")
	var raw, payload []byte
	var answer error
	TakePushes(peer, func(_ identity.ID, r, p []byte) error {
		raw, payload = slices.Clone(r), slices.Clone(p)
		return answer
	})
	largest := make([]byte, MaxPushed)
	for _, sent := range [][]byte{[]byte("x"), largest} {
		if err := Push(t.Context(), peer, identity.ID{1}, EncodePush([]byte("announcement"), sent)); err != nil || string(raw) != "announcement" || !bytes.Equal(payload, sent) {
			t.Errorf("push of %d bytes: %v, got %q and %d bytes", len(sent), err, raw, len(payload))
		}
	}
	answer = refusal
	if err := Push(t.Context(), peer, identity.ID{1}, EncodePush([]byte("a"), []byte("x"))); !errors.Is(err, refusal) {
		t.Errorf("a refused push: %v", err)
	}
	for name, b := range map[string][]byte{
		"empty": {}, "no result": EncodePush([]byte("a"), nil), "cut": {9, 0, 1, 2}, "half a size": {1},
		"large result":       EncodePush([]byte("a"), append(largest, 0)),
		"large announcement": EncodePush(make([]byte, MaxAnnouncementSize+1), []byte("x")),
	} {
		if _, _, err := decodePush(b); !errors.Is(err, errMalformed) {
			t.Errorf("%s: got %v; want error errMalformed", name, err)
		}
	}
}

func FuzzDecodePush(f *testing.F) {
	f.Add([]byte{})
	f.Add(EncodePush([]byte("abc"), []byte("d")))
	f.Add([]byte{0xff, 0xff, 1})
	fuzztest.Run(f, func(t *testing.T, b []byte) {
		raw, payload, err := decodePush(b)
		if err == nil && !bytes.Equal(EncodePush(raw, payload), b) {
			t.Error("two encodings of one value")
		}
	})
}
