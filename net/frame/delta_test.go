package frame

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"pgregory.net/rapid"
)

// TestDeltaIsSmall checks the size of a delta for the changes in a typical round: one changed byte,
// one inserted witness, and a second copy of the list of members.
func TestDeltaIsSmall(t *testing.T) {
	random := rand.NewChaCha8([32]byte{1})
	noise := func(n int) []byte { b := make([]byte, n); _, _ = random.Read(b); return b }
	old := noise(100_000)
	new := slices.Clone(old)
	new[5000] ^= 1
	new = slices.Insert(new, 60_000, noise(700)...)
	new = append(new, old[20_000:28_000]...)
	delta := AppendDelta(nil, old, new)
	if len(delta) > 900 {
		t.Errorf("%d bytes for a change of 701 bytes", len(delta))
	}
	got, err := ApplyDelta(old, delta, MaxToClient)
	if err != nil || !bytes.Equal(got, new) {
		t.Fatalf("wrong result: %v", err)
	}
	if _, err := ApplyDelta(old[1:], delta, MaxToClient); !errors.Is(err, ErrMalformed) {
		t.Fatalf("applied to a different state: %v", err)
	}
	if _, err := ApplyDelta(old, delta, len(new)-1); !errors.Is(err, ErrMalformed) {
		t.Fatalf("over the limit: %v", err)
	}
}

func TestDeltaRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		piece := rapid.SliceOfN(rapid.Byte(), 0, 40)
		pieces := rapid.SliceOfN(piece, 1, 6).Draw(t, "pieces")
		join := func(name string) []byte {
			var b []byte
			for _, i := range rapid.SliceOfN(rapid.IntRange(0, len(pieces)-1), 0, 12).Draw(t, name) {
				b = append(b, pieces[i]...)
			}
			return b
		}
		old, new := join("old"), join("new")
		got, err := ApplyDelta(old, AppendDelta(nil, old, new), len(new))
		if err != nil || !bytes.Equal(got, new) {
			t.Fatalf("%x, %v; want %x", got, err, new)
		}
	})
}

// FuzzDelta checks that arbitrary deltas give an error or at most the maximum number of bytes.
func FuzzDelta(f *testing.F) {
	old := []byte("The quick brown fox jumps over the lazy dog.")
	f.Add(old, AppendDelta(nil, old, []byte("The quick brown dog jumps over the lazy fox.")))
	f.Add(old, AppendDelta(nil, old, nil))
	f.Add(old, []byte{1, 2, 3})
	fuzztest.Run(f, func(t *testing.T, old, delta []byte) {
		made, err := ApplyDelta(old, delta, 1000)
		if err != nil && !errors.Is(err, ErrMalformed) || len(made) > 1000 {
			t.Fatalf("%d bytes, %v", len(made), err)
		}
	})
}

func BenchmarkAppendDelta(b *testing.B) {
	random := rand.NewChaCha8([32]byte{1})
	old := make([]byte, 130_000)
	_, _ = random.Read(old)
	new := slices.Insert(slices.Clone(old), 60_000, old[:700]...)
	new[5000] ^= 1
	b.ReportAllocs()
	for b.Loop() {
		AppendDelta(nil, old, new)
	}
}
