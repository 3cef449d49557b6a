package p2p

import (
	"bytes"
	"errors"
	"io"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"pgregory.net/rapid"
)

func TestFrameRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		payload := rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "payload")
		limit := rapid.IntRange(0, 300).Draw(t, "limit")
		var buf bytes.Buffer
		if err := writeFrame(&buf, nil, payload); err != nil {
			t.Fatal(err)
		}
		got, err := readFrame(&buf, limit)
		if len(payload) > limit {
			if !errors.Is(err, ErrTooLarge) {
				t.Fatalf("error %v", err)
			}
			return
		}
		if err != nil || !bytes.Equal(got, payload) {
			t.Fatalf("got %x, %v, want %x", got, err, payload)
		}
	})
}

// FuzzRequest passes the same bytes to the decoders of a server and of a client.
func FuzzRequest(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0})
	f.Add([]byte{0, 0, 0, 2, 'h', 'i'})
	f.Add([]byte{0, 0, 0, 3, 'h', 'i'})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Add([]byte{statusOK, 0, 0, 0, 1, 'x'})
	f.Add([]byte{statusRefused, 0, 0, 0, 1, 0xff})
	f.Add([]byte{7})
	fuzztest.Run(f, func(t *testing.T, raw []byte) {
		const limit = 64
		payload, err := readFrame(bytes.NewReader(raw), limit)
		if err == nil {
			var again bytes.Buffer
			if err := writeFrame(&again, nil, payload); err != nil || !bytes.HasPrefix(raw, again.Bytes()) {
				t.Fatalf("%x decodes to %x, which encodes to %x (%v)", raw, payload, again.Bytes(), err)
			}
		}
		if len(payload) > limit {
			t.Fatalf("%d bytes, at most %d", len(payload), limit)
		}
		response, err := readResponse(bytes.NewReader(raw), limit)
		if len(response) > limit || err != nil && response != nil {
			t.Fatalf("%d bytes and %v", len(response), err)
		}
	})
}

// endless is a reader that never ends.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestFrameOfAnEndlessPeer(t *testing.T) {
	if _, err := readFrame(io.MultiReader(bytes.NewReader([]byte{0, 0, 0, 5}), endless{}), 5); err != nil {
		t.Error(err)
	}
}
