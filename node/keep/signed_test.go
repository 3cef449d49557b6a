package keep

import (
	"crypto/sha256"
	"errors"
	"os"
	"testing"
)

// TestNewestSigned checks that the newest signed step of each run is found.
func TestNewestSigned(t *testing.T) {
	f := Folder{Dir: t.TempDir(), RunID: "run/a", ID: [32]byte{1, 2, 3}}
	one, two := sha256.Sum256([]byte("one")), sha256.Sum256([]byte("two"))
	want := func(run [32]byte, step uint32, found bool) {
		t.Helper()
		got, ok, err := f.NewestSigned(run)
		if err != nil || ok != found || got != step {
			t.Fatalf("newest signed step %d, found %v (%v), want %d, %v", got, ok, err, step, found)
		}
	}
	want(one, 0, false)
	for _, step := range []uint32{1, 2, 3, 7, 8, 20} {
		if err := f.NoteSigned(one, step); err != nil {
			t.Fatal(err)
		}
		want(one, step, true)
		want(two, 0, false)
	}
	for _, step := range []uint32{19, 20} { // as if another process had signed them
		if err := f.NoteSigned(one, step); !errors.Is(err, errSigned) {
			t.Errorf("step %d is recorded twice: %v", step, err)
		}
		want(one, 20, true)
	}
	other := f
	other.ID[0] = 9
	if _, found, err := other.NewestSigned(one); found || err != nil {
		t.Errorf("a different key has a record: %v", err)
	}
	for step := uint32(1); step < 4; step++ { // a new run with the same name
		if err := f.NoteSigned(two, step); err != nil {
			t.Fatal(err)
		}
		want(two, step, true)
	}
}

// TestTornNote checks that a partly written record does not affect the earlier steps, wherever it
// ends.
func TestTornNote(t *testing.T) {
	run := sha256.Sum256([]byte("run"))
	for size := range signedSlotSize {
		f := Folder{Dir: t.TempDir(), RunID: "run"}
		for _, step := range []uint32{4, 5} {
			if err := f.NoteSigned(run, step); err != nil {
				t.Fatal(err)
			}
		}
		before, err := os.ReadFile(f.Signed())
		if err != nil {
			t.Fatal(err)
		}
		if err := f.NoteSigned(run, 6); err != nil {
			t.Fatal(err)
		}
		after, err := os.ReadFile(f.Signed())
		if err != nil {
			t.Fatal(err)
		}
		copy(before, after[:size]) // step 6 is in the first slot
		if err := os.WriteFile(f.Signed(), before, 0o600); err != nil {
			t.Fatal(err)
		}
		if step, found, err := f.NewestSigned(run); err != nil || !found || step < 5 {
			t.Fatalf("after %d bytes of a record: step %d, found %v (%v)", size, step, found, err)
		}
	}
}

// TestUnreadableNote checks that an unreadable record is an error, so that it is not mistaken for a
// missing one.
func TestUnreadableNote(t *testing.T) {
	f := Folder{Dir: t.TempDir(), RunID: "run"}
	if err := f.NoteSigned([32]byte{1}, 1); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"", "no note"} {
		if err := os.WriteFile(f.Signed(), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, found, err := f.NewestSigned([32]byte{1}); err == nil || found {
			t.Errorf("%q: found %v, %v", content, found, err)
		}
		if err := f.NoteSigned([32]byte{1}, 7); err != nil {
			t.Fatal(err)
		}
		if step, found, err := f.NewestSigned([32]byte{1}); err != nil || !found || step != 7 {
			t.Errorf("after a new record: step %d, found %v (%v)", step, found, err)
		}
	}
}
