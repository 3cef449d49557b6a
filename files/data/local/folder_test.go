package local

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data/tokens"
)

// write creates a token file of two-byte ids.
func write(t testing.TB, path string, tokens ...uint16) {
	t.Helper()
	var raw []byte
	for _, token := range tokens {
		raw = binary.LittleEndian.AppendUint16(raw, token)
	}
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
}

// count returns n tokens, starting with first.
func count(first, n int) []uint16 {
	tokens := make([]uint16, n)
	for i := range tokens {
		tokens[i] = uint16(first + i)
	}
	return tokens
}

func open(t testing.TB, dir string, o Options) *Folder {
	t.Helper()
	folder, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := folder.Close(); err != nil {
			t.Error(err)
		}
	})
	return folder
}

func sequences(t testing.TB, f *Folder, start, end uint64) [][]int32 {
	t.Helper()
	got, err := f.Sequences(context.Background(), assign.BatchID{Start: start, End: end})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func TestSequencesAreReadInTheOrderOfNames(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "b.bin"), count(100, 5)...) // exactly one sequence
	write(t, filepath.Join(dir, "a.ds"), count(0, 10)...)   // two sequences, the rest is dropped
	write(t, filepath.Join(dir, "c.npy"), count(200, 9)...) // two sequences, exactly
	write(t, filepath.Join(dir, "ignored.txt"), 1)
	if err := os.Mkdir(filepath.Join(dir, "heldout.ds"), 0o755); err != nil {
		t.Fatal(err)
	}
	f := open(t, dir, Options{SeqLen: 4, TokenSize: 2})
	if f.Len() != 5 || f.Tokens() != 24 {
		t.Errorf("got %d sequences and %d tokens, want 5 and 24", f.Len(), f.Tokens())
	}
	want := [][]int32{
		{0, 1, 2, 3, 4}, {4, 5, 6, 7, 8}, {100, 101, 102, 103, 104}, {200, 201, 202, 203, 204}, {204, 205, 206, 207, 208},
		{0, 1, 2, 3, 4}, // the next pass
	}
	if diff := cmp.Diff(want, sequences(t, f, 0, 6)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[2:4], sequences(t, f, 12, 14)); diff != "" {
		t.Errorf("third pass (-want +got):\n%s", diff)
	}
}

func TestFourByteTokens(t *testing.T) {
	dir := t.TempDir()
	var raw []byte
	for _, id := range []uint32{1, 70000, 2147483647} {
		raw = binary.LittleEndian.AppendUint32(raw, id)
	}
	if err := os.WriteFile(filepath.Join(dir, "a.ds"), raw, 0o644); err != nil {
		t.Fatal(err)
	}
	f := open(t, dir, Options{SeqLen: 2, TokenSize: 4})
	if diff := cmp.Diff([][]int32{{1, 70000, 2147483647}}, sequences(t, f, 0, 1)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestEveryPassHasEverySequenceOnce reads shuffled passes of several files.
func TestEveryPassHasEverySequenceOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "local")
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}()
		seqLen := rapid.IntRange(1, 5).Draw(t, "seqLen")
		next := 0
		for i, n := range rapid.SliceOfN(rapid.IntRange(seqLen+1, 40), 1, 4).Draw(t, "files") {
			var raw []byte
			for _, token := range count(next, n) {
				raw = binary.LittleEndian.AppendUint16(raw, token)
			}
			next += n
			if err := os.WriteFile(filepath.Join(dir, string(rune('a'+i))+".ds"), raw, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		plain, err := Open(dir, Options{SeqLen: seqLen, TokenSize: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = plain.Close() }()
		shuffled, err := Open(dir, Options{SeqLen: seqLen, TokenSize: 2, Seed: &[32]byte{3}})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = shuffled.Close() }()
		pass := rapid.Uint64Range(0, 2).Draw(t, "pass")
		all := assign.BatchID{Start: pass * plain.Len(), End: (pass + 1) * plain.Len()}
		want, err := plain.Sequences(context.Background(), all)
		if err != nil {
			t.Fatal(err)
		}
		got, err := shuffled.Sequences(context.Background(), all)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(got, slices.Compare)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
	})
}

func TestOpenNamesWhatIsWrong(t *testing.T) {
	good := Options{SeqLen: 4, TokenSize: 2}
	tests := []struct {
		name    string
		make    func(dir string)
		options Options
		want    error
	}{
		{"missing folder", func(dir string) { _ = os.Remove(dir) }, good, fs.ErrNotExist},
		{"missing held-out folder", func(dir string) { _ = os.Remove(dir) }, good, fs.ErrNotExist},
		{"empty folder", func(string) {}, good, tokens.ErrNoFiles},
		{"odd length", func(dir string) { _ = os.WriteFile(filepath.Join(dir, "odd.ds"), make([]byte, 21), 0o644) }, good, tokens.ErrOddLength},
		{"odd length of four bytes", func(dir string) { _ = os.WriteFile(filepath.Join(dir, "odd.ds"), make([]byte, 42), 0o644) },
			Options{SeqLen: 4, TokenSize: 4}, tokens.ErrOddLength},
		{"too short", func(dir string) { write(t, filepath.Join(dir, "short.ds"), count(0, 4)...) }, good, tokens.ErrTooShort},
		{"empty file", func(dir string) { write(t, filepath.Join(dir, "empty.ds")) }, good, tokens.ErrTooShort},
		{"numpy header", func(dir string) {
			_ = os.WriteFile(filepath.Join(dir, "a.npy"), []byte("\x93NUMPY\x01\x00v\x00{'descr': '<u2'}    "), 0o644)
		}, good, tokens.ErrNumpyHeader},
		{"sequence length", func(string) {}, Options{TokenSize: 2}, nil},
		{"token size", func(string) {}, Options{SeqLen: 4, TokenSize: 3}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			if strings.Contains(test.name, "held-out") {
				dir = filepath.Join(t.TempDir(), "heldout")
			}
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			test.make(dir)
			_, err := Open(dir, test.options)
			if test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			golden.Message(t, test.name, err)
		})
	}
}

func TestTokensOutOfRange(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.ds"), count(0, 9)...)
	write(t, filepath.Join(dir, "b.ds"), 1, 2, 3, 4, 5, 6, 256, 7, 8)
	f := open(t, dir, Options{SeqLen: 4, TokenSize: 2, VocabSize: 256})
	_, err := f.Sequences(context.Background(), assign.BatchID{Start: 2, End: 4})
	if !errors.Is(err, tokens.ErrTokenRange) {
		t.Errorf("got %v, want ErrTokenRange", err)
	}
	golden.Message(t, "Sequences", err)
	if _, err = f.CheckTokens(context.Background()); !errors.Is(err, tokens.ErrTokenRange) {
		t.Errorf("CheckTokens: %v, want ErrTokenRange", err)
	}
	golden.Message(t, "CheckTokens", err)
	whole := open(t, dir, Options{SeqLen: 4, TokenSize: 2})
	if largest, err := whole.CheckTokens(context.Background()); err != nil || largest != 256 {
		t.Errorf("CheckTokens: %d, %v, want 256", largest, err)
	}
}

func TestFileThatShrankIsNamed(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a.ds")
	write(t, path, count(0, 9)...)
	f := open(t, dir, Options{SeqLen: 4, TokenSize: 2})
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	_, err := f.Sequences(context.Background(), assign.BatchID{Start: 1, End: 2})
	golden.Message(t, "second batch", err)
}

func TestBatchesAreBounded(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a.ds"), count(0, 9)...)
	f := open(t, dir, Options{SeqLen: 4, TokenSize: 2})
	for _, batch := range []assign.BatchID{{Start: 1, End: 1}, {Start: 2, End: 1}, {End: 1 << 63}} {
		if _, err := f.Sequences(context.Background(), batch); err == nil {
			t.Errorf("batch %v was read", batch)
		}
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := f.Sequences(cancelled, assign.BatchID{End: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want a cancelled read", err)
	}
}

// FuzzFolder reads files of arbitrary bytes. It checks that errors are returned, that nothing
// panics, and that every token is in range.
func FuzzFolder(f *testing.F) {
	f.Add([]byte("0123456789abcdef"), 2, 3, 300)
	f.Add([]byte("\x93NUMPY\x01\x00v\x00"), 2, 1, 0)
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 255}, 4, 1, 0)
	fuzztest.Run(f, func(t *testing.T, raw []byte, tokenSize, seqLen, vocabSize int) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "f.ds"), raw, 0o644); err != nil {
			t.Fatal(err)
		}
		folder, err := Open(dir, Options{SeqLen: seqLen, TokenSize: tokenSize, VocabSize: vocabSize})
		if err != nil {
			return
		}
		defer func() { _ = folder.Close() }()
		for i := range folder.Len() {
			read, err := folder.Sequences(context.Background(), assign.BatchID{Start: i, End: i + 1})
			if err != nil {
				continue
			}
			for _, token := range read[0] {
				if token < 0 || vocabSize > 0 && int(token) >= vocabSize {
					t.Fatalf("token %d is out of range", token)
				}
			}
		}
	})
}
