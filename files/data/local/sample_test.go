package local

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/files/data/tokens"
)

// TestSampleIsSpread checks that a sample starts with the first sequence of the data, and that its distances
// are equal to within one sequence, including the distance from its last sequence to the end of the data.
func TestSampleIsSpread(t *testing.T) {
	path := filepath.Join(t.TempDir(), "heldout.ds")
	write(t, path, count(0, 4*101+1)...)
	o := Options{SeqLen: 4, TokenSize: 2}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64Range(1, 101).Draw(t, "n")
		s, err := ReadSample(context.Background(), path, o, n)
		if err != nil {
			t.Fatal(err)
		}
		if uint64(len(s.Sequences)) != n || s.Of != 101 || s.Sequences[0][0] != 0 {
			t.Fatalf("%d of %d sequences from token %d on, want %d of 101 from 0 on", len(s.Sequences), s.Of, s.Sequences[0][0], n)
		}
		for i := range s.Sequences {
			next := 101
			if i+1 < len(s.Sequences) {
				next = int(s.Sequences[i+1][0]) / 4
			}
			if distance := next - int(s.Sequences[i][0])/4; distance < 101/int(n) || distance > 101/int(n)+1 {
				t.Errorf("sequence %d is %d before the next", i, distance)
			}
		}
	})
	for n, name := range map[uint64]string{9: "9 of 101 sequences of 4 tokens, spread", 0: "all 101 sequences of 4 tokens", 102: "all 101 sequences of 4 tokens"} {
		if s, err := ReadSample(t.Context(), path, o, n); err != nil || s.String() != name {
			t.Errorf("%d sequences: %q, error %v, want %q", n, s, err, name)
		}
	}
	o.TokenSize = 3
	if _, err := ReadSample(t.Context(), path, o, 1); err == nil || errors.Is(err, tokens.ErrNoFiles) {
		t.Errorf("token size 3: error %v", err)
	}
}
