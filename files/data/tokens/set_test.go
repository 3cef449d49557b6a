package tokens

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/base/filestart"
	"github.com/psyche-go/psyche/core/assign"
)

func TestNamesAreInNaturalOrder(t *testing.T) {
	want := []string{
		"00.ds", "0.ds", "1.ds", "2.ds", "10.ds", "a", "a1", "a01b", "a2", "a2.bin", "a2/b.ds", "a10.ds",
		"shard-18446744073709551615.ds", "shard-18446744073709551616.ds", "\xff",
	}
	want[0], want[1] = "0.ds", "00.ds"
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, Compare)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCompareIsAnOrder checks the conditions for sorting: antisymmetry, transitivity, and that only
// equal names compare as equal.
func TestCompareIsAnOrder(t *testing.T) {
	name := rapid.StringMatching(`[a0-2]{0,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b, c := name.Draw(t, "a"), name.Draw(t, "b"), name.Draw(t, "c")
		if Compare(a, b) != -Compare(b, a) || (Compare(a, b) == 0) != (a == b) {
			t.Fatalf("%q and %q: %d and %d", a, b, Compare(a, b), Compare(b, a))
		}
		if Compare(a, b) < 0 && Compare(b, c) < 0 && Compare(a, c) >= 0 {
			t.Fatalf("%q < %q < %q, but not %q < %q", a, b, c, a, c)
		}
	})
}

func TestHeldOutTokensAreNoTrainingData(t *testing.T) {
	for name, want := range map[string]bool{
		"a.ds": true, "x/a.bin": true, "a.npy": true, "heldout.ds": true,
		"._a.ds": false, ".cache/a.ds": false, "x/.a.bin": false, "a.ds.metadata": false, "~$a.npy": false,
		"a.txt": false, "ds": false, "heldout/heldout.ds": false, "x/heldout/y/a.ds": false,
	} {
		if got := IsTokenFile(name); got != want {
			t.Errorf("%s: got %v; want %v", name, got, want)
		}
	}
}

// memory is a file that records how it is read.
type memory struct {
	data  []byte
	mu    sync.Mutex
	reads []string
}

func (m *memory) Name() string { return "memory" }
func (m *memory) Size() int64  { return int64(len(m.data)) }

func (m *memory) ReadAt(_ context.Context, buffer []byte, offset int64) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.reads = append(m.reads, fmt.Sprintf("%d+%d", offset, len(buffer)))
	copy(buffer, m.data[offset:])
	return nil
}

func TestNeighboursAreReadTogether(t *testing.T) {
	file := &memory{data: make([]byte, 2*101)}
	for i := range 101 {
		file.data[2*i] = byte(i)
	}
	set, err := New([]File{file}, Options{SeqLen: 10, TokenSize: 2})
	if err != nil {
		t.Fatal(err)
	}
	got, err := set.Read(context.Background(), []uint64{2, 3, 4, 9, 10, 11, 1})
	if err != nil {
		t.Fatal(err)
	}
	// Index 10 is the first sequence of the second pass.
	if diff := cmp.Diff([]string{"40+62", "180+22", "0+42", "20+22"}, file.reads); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for i, first := range []int32{20, 30, 40, 90, 0, 10, 10} {
		if len(got[i]) != 11 || got[i][0] != first || got[i][10] != first+10 {
			t.Errorf("sequence %d is %v", i, got[i])
		}
	}
}

func TestReadsAreBounded(t *testing.T) {
	file := &memory{data: make([]byte, 3*maxRead)}
	set, err := New([]File{file}, Options{SeqLen: 1 << 16, TokenSize: 2, Parallel: 3})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := set.Sequences(context.Background(), assign.BatchID{End: set.Len()}); err != nil {
		t.Fatal(err)
	}
	if len(file.reads) != 3 {
		t.Errorf("%d reads, want 3: %v", len(file.reads), file.reads)
	}
}

func TestNewNamesWhatIsWrong(t *testing.T) {
	o := Options{SeqLen: 4, TokenSize: 2}
	if _, err := New(nil, o); !errors.Is(err, ErrNoFiles) {
		t.Errorf("no files: %v", err)
	}
	if _, err := New(make([]File, MaxFiles+1), o); err == nil {
		t.Error("too many files were accepted")
	}
	if _, err := Begin(&memory{}, []byte("\x93NUMPY\x01\x00"), o); !errors.Is(err, ErrNumpyHeader) {
		t.Errorf("numpy header: %v", err)
	}
	if _, err := Begin(&memory{}, []byte("version https://git-lfs.github.com/spec/v1\noid sha256:00"), o); !errors.Is(err, filestart.ErrPointer) {
		t.Errorf("pointer of Git LFS: %v", err)
	}
}
