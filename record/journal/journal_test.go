package journal

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"pgregory.net/rapid"
)

// open opens the journal and returns the payloads that it contained.
func open(t *testing.T, path string) (*Journal, Summary, []string) {
	t.Helper()
	var payloads []string
	j, summary, err := Open(path, func(p []byte) error { payloads = append(payloads, string(p)); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return j, summary, payloads
}

// build writes a journal of the payloads and returns its path and content.
func build(t *testing.T, payloads ...string) (string, []byte) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "journal")
	j, _, _ := open(t, path)
	for _, p := range payloads {
		if err := j.Append([]byte(p)); err != nil {
			t.Fatal(err)
		}
		if err := j.Commit(); err != nil {
			t.Fatal(err)
		}
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, content
}

func TestReopenReturnsCommittedEntries(t *testing.T) {
	want := []string{"genesis", "", "third", strings.Repeat("x", 100_000)}
	path, content := build(t, want...)
	j, summary, got := open(t, path)
	defer func() { _ = j.Close() }()
	if !slices.Equal(got, want) || summary.Entries != 4 || summary.Torn != 0 || summary.Size != int64(len(content)) {
		t.Fatalf("got %d payloads, %+v", len(got), summary)
	}
}

func TestAppendedButNotCommittedIsDropped(t *testing.T) {
	path, _ := build(t, "a")
	j, _, _ := open(t, path)
	if err := j.Append([]byte("b")); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	j, _, got := open(t, path)
	defer func() { _ = j.Close() }()
	if !slices.Equal(got, []string{"a"}) {
		t.Fatalf("got %q; want []string{\"a\"}", got)
	}
}

// TestTornTailIsCutAtEveryByte cuts the file at every byte. It checks that Open keeps the whole
// entries and cuts off the rest, and that Append still works.
func TestTornTailIsCutAtEveryByte(t *testing.T) {
	payloads := []string{"genesis", "first action", "second action"}
	_, content := build(t, payloads...)
	_, withoutLast := build(t, payloads[:2]...)
	_, withoutTwo := build(t, payloads[:1]...)
	_, empty := build(t)
	path := filepath.Join(t.TempDir(), "journal")
	for size := range content {
		if err := os.WriteFile(path, content[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		j, summary, got := open(t, path)
		whole, size0 := 0, 0
		switch {
		case size >= len(withoutLast):
			whole, size0 = 2, len(withoutLast)
		case size >= len(withoutTwo):
			whole, size0 = 1, len(withoutTwo)
		case size >= len(empty):
			size0 = len(empty)
		}
		if !slices.Equal(got, payloads[:whole]) || summary.Torn != int64(size-size0) {
			t.Fatalf("cut at %d: payloads %q, torn %d; want %d payloads, torn %d", size, got, summary.Torn, whole, size-size0)
		}
		if err := errors.Join(j.Append([]byte("next")), j.Commit(), j.Close()); err != nil {
			t.Fatal(err)
		}
		j, _, got = open(t, path)
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
		if want := append(slices.Clone(payloads[:whole]), "next"); !slices.Equal(got, want) {
			t.Fatalf("cut at %d, after an append: %q, want %q", size, got, want)
		}
	}
}

// TestDamageIsRefused changes every byte in turn. It checks that Open reports each damage and does
// not change the file.
func TestDamageIsRefused(t *testing.T) {
	_, content := build(t, "genesis", "first action", "second action")
	path := filepath.Join(t.TempDir(), "journal")
	for i := range content {
		damaged := slices.Clone(content)
		damaged[i] ^= 0x10
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := Open(path, func([]byte) error { return nil })
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), path) {
			t.Fatalf("byte %d: error %v", i, err)
		}
		if i%40 == 0 {
			golden.Message(t, fmt.Sprintf("byte %d", i), err)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, damaged) {
			t.Fatalf("byte %d: the file was changed (%v)", i, err)
		}
	}
}

func TestEntriesCannotBeRemovedOrSwapped(t *testing.T) {
	_, content := build(t, "aa", "bb", "cc")
	entry := (len(content) - len(magic)) / 3
	a, b, c := content[len(magic):len(magic)+entry], content[len(magic)+entry:len(magic)+2*entry], content[len(magic)+2*entry:]
	for name, entries := range map[string][][]byte{"removed": {a, c}, "swapped": {b, a, c}, "repeated": {a, a, b, c}} {
		t.Run(name, func(t *testing.T) {
			_, err := Read(bytes.NewReader(append([]byte(magic), bytes.Join(entries, nil)...)), func([]byte) error { return nil })
			if !errors.Is(err, ErrDamaged) {
				t.Fatalf("error %v", err)
			}
			golden.Message(t, "error", err)
		})
	}
}

func TestReplayErrorNamesTheOffset(t *testing.T) {
	path, _ := build(t, "a", "b")
	refuse := errors.New("refused")
	_, _, err := Open(path, func(p []byte) error {
		if string(p) == "b" {
			return refuse
		}
		return nil
	})
	if !errors.Is(err, refuse) {
		t.Fatalf("error %v, want %v", err, refuse)
	}
	golden.Message(t, "error", err)
}

func TestSecondWriterIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	j, _, _ := open(t, path)
	defer func() { _ = j.Close() }()
	if _, _, err := Open(path, func([]byte) error { return nil }); !errors.Is(err, ErrLocked) {
		t.Fatalf("error %v, want ErrLocked", err)
	}
}

func TestAppendRefusesLargePayload(t *testing.T) {
	j, _, _ := open(t, filepath.Join(t.TempDir(), "journal"))
	defer func() { _ = j.Close() }()
	if err := j.Append(make([]byte, MaxPayload+1)); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("error %v", err)
	}
}

func TestForeignFileIsRefusedAndKept(t *testing.T) {
	for _, content := range []string{"short", "a text that is no journal at all"} {
		path := filepath.Join(t.TempDir(), "journal")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Open(path, func([]byte) error { return nil }); !errors.Is(err, ErrDamaged) {
			t.Fatalf("error %v", err)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != content {
			t.Fatalf("the file is now %q (%v)", after, err)
		}
	}
}

func TestGroupsOfEntries(t *testing.T) {
	path := filepath.Join(t.TempDir(), "journal")
	rapid.Check(t, func(rt *rapid.T) {
		_ = os.Remove(path)
		groups := rapid.SliceOfN(rapid.SliceOfN(rapid.StringN(0, 50, 100), 0, 5), 0, 5).Draw(rt, "groups")
		j, _, _ := open(t, path)
		var want []string
		for _, group := range groups {
			for _, p := range group {
				if err := j.Append([]byte(p)); err != nil {
					rt.Fatal(err)
				}
			}
			if err := j.Commit(); err != nil {
				rt.Fatal(err)
			}
			want = append(want, group...)
		}
		_ = j.Close()
		j, _, got := open(t, path)
		_ = j.Close()
		if !slices.Equal(got, want) {
			rt.Fatalf("got %q, want %q", got, want)
		}
	})
}

// TestEarlierFormatIsRefused checks that the error names the format and a remedy, and that the file
// is unchanged.
func TestEarlierFormatIsRefused(t *testing.T) {
	for _, earlier := range []string{"1", "5", "11"} {
		testEarlierFormatIsRefused(t, magicName+earlier+"\n")
	}
}

func testEarlierFormatIsRefused(t *testing.T, magic string) {
	path := filepath.Join(t.TempDir(), "old.journal")
	content, _ := appendEntry([]byte(magic), [32]byte{}, []byte("one"))
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	_, _, err := Open(path, func([]byte) error { return errors.New("an entry was read") })
	if !errors.Is(err, errVersion) || errors.Is(err, ErrDamaged) {
		t.Errorf("got %v", err)
	}
	golden.Message(t, "format "+strings.TrimPrefix(strings.TrimSpace(magic), magicName), err)
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, content) {
		t.Errorf("the file was changed: %v", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(magic))
	entries, last := appendEntry([]byte(magic), [32]byte{}, []byte("one"))
	f.Add(entries)
	entries, _ = appendEntry(entries, last, []byte("two"))
	f.Add(entries)
	f.Add(append([]byte(magic), 0xff, 0xff, 0xff, 0xff))
	fuzztest.Run(f, func(t *testing.T, content []byte) {
		rebuilt, last := []byte(magic), [32]byte{}
		summary, err := Read(bytes.NewReader(content), func(p []byte) error {
			rebuilt, last = appendEntry(rebuilt, last, p)
			return nil
		})
		if err != nil {
			return
		}
		if int64(len(content)) != summary.Size+summary.Torn {
			t.Fatalf("%d bytes, summary %+v", len(content), summary)
		}
		if summary.Size > 0 && !bytes.Equal(rebuilt, content[:summary.Size]) {
			t.Fatal("the payloads of an accepted file have a second encoding")
		}
	})
}

// TestOpenAt checks that OpenAt continues after an earlier position, and refuses a position that
// does not exist in the file.
func TestOpenAt(t *testing.T) {
	path, _ := build(t, "genesis", "first")
	j, summary, _ := open(t, path)
	position := j.Position()
	if position.Entries != 2 || position.Offset != summary.Size || position.Last != summary.Last {
		t.Fatalf("position %+v, summary %+v", position, summary)
	}
	if err := errors.Join(j.Append([]byte("second")), j.Commit(), j.Append([]byte("third")), j.Commit(), j.Close()); err != nil {
		t.Fatal(err)
	}
	var got []string
	again, summary, err := OpenAt(path, position, func(p []byte) error { got = append(got, string(p)); return nil })
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, []string{"second", "third"}) || summary.Entries != 4 {
		t.Fatalf("got %q, %+v; want []string{\"second\", \"third\"} and summary.Entries == 4", got, summary)
	}
	if err := errors.Join(again.Append([]byte("fourth")), again.Commit(), again.Close()); err != nil {
		t.Fatal(err)
	}
	if j, _, got = open(t, path); len(got) != 5 {
		t.Fatalf("got %q; want len(got) == 5", got)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Position){
		"another hash":   func(p *Position) { p.Last[0] ^= 1 },
		"inside a entry": func(p *Position) { p.Offset++ },
		"past the end":   func(p *Position) { p.Offset = 1 << 30 },
		"too early":      func(p *Position) { p.Offset = 3 },
	} {
		wrong := position
		change(&wrong)
		if _, _, err := OpenAt(path, wrong, func([]byte) error { return nil }); !errors.Is(err, errPosition) {
			t.Errorf("%s: got %v; want error errPosition", name, err)
		}
	}
}

func TestReadStops(t *testing.T) {
	_, content := build(t, "genesis", "first")
	seen := 0
	summary, err := Read(bytes.NewReader(content), func([]byte) error { seen++; return ErrStop })
	if err != nil || seen != 1 || summary.Entries != 0 {
		t.Fatalf("%d payloads, %+v, %v", seen, summary, err)
	}
}
