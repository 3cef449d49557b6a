package keep

import (
	"encoding/hex"
	"errors"
	"os"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
)

// save writes a model as a Saver does.
func save(t *testing.T, f Folder, step uint32, noted func(*checkpoint.Facts)) (digest [32]byte) {
	t.Helper()
	snapshot := clienttest.Model()
	snapshot.Step = step
	digest = snapshot.Manifest().Digest()
	facts := checkpoint.Facts{RunID: f.RunID, Step: step, Digest: hex.EncodeToString(digest[:])}
	if noted != nil {
		noted(&facts)
	}
	if err := writeCheckpoint(f.Checkpoint(step), snapshot, facts.Extra()); err != nil {
		t.Fatal(err)
	}
	return digest
}

// TestSavedIsFoundAgain checks that a saved model is found and read if it matches its facts.
func TestSavedIsFoundAgain(t *testing.T) {
	f := Folder{Dir: t.TempDir(), RunID: "run"}
	if _, found := (Folder{}).NewestBefore(9); found {
		t.Error("found something without a folder")
	}
	if _, found := f.NewestBefore(9); found {
		t.Error("found something in an empty folder")
	}
	want := save(t, f, 3, nil)
	save(t, f, 6, nil)
	save(t, Folder{Dir: f.Dir, RunID: "other"}, 5, nil)
	for before, newest := range map[uint32]uint32{9: 6, 7: 6, 6: 3, 4: 3} {
		if step, found := f.NewestBefore(before); !found || step != newest {
			t.Errorf("before %d: %d, %v", before, step, found)
		}
	}
	if _, found := f.NewestBefore(3); found {
		t.Error("found one before the first")
	}
	digest, err := f.Digest(3)
	if err != nil || digest != want {
		t.Errorf("digest %x, %v", digest, err)
	}
	if s, err := f.Read(3, digest); err != nil || s.Step != 3 {
		t.Errorf("read step %d, %v", s.Step, err)
	}
	if _, err := f.Read(6, digest); !errors.Is(err, checkpoint.ErrInvalid) {
		t.Errorf("a different model than requested: %v", err)
	}
	for step, change := range map[uint32]func(*checkpoint.Facts){
		12: func(f *checkpoint.Facts) { f.RunID = "another" },
		13: func(f *checkpoint.Facts) { f.Step++ },
		14: func(f *checkpoint.Facts) { f.Digest = "0" },
	} {
		save(t, f, step, change)
		if _, err := f.Digest(step); err == nil {
			t.Errorf("wrong facts of step %d are believed", step)
		}
	}
}

// TestHoldsLooksOnce checks that the folder is read once for each checkpoint of the run, and only
// for checkpoints from members.
func TestHoldsLooksOnce(t *testing.T) {
	f := Folder{Dir: t.TempDir(), RunID: "run"}
	k := NewSaver(Options{Tasks: &env.Tasks{Runtime: &bench{}}, Folder: f})
	c := coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Step: 3, Digest: save(t, f, 3, nil)}
	other, initial := c, c
	other.Digest[0]++
	initial.Kind = coordinator.CheckpointLocal
	for _, test := range []struct {
		c    coordinator.Checkpoint
		want bool
	}{{other, false}, {initial, false}, {c, true}} {
		if k.Holds(test.c) != test.want {
			t.Errorf("%+v: want %v", test.c, test.want)
		}
	}
	if err := os.RemoveAll(f.Dir); err != nil {
		t.Fatal(err)
	}
	if !k.Holds(c) {
		t.Error("the folder was read twice")
	}
	if k.Holds(other) || k.Holds(c) {
		t.Error("the folder was not read for a different checkpoint")
	}
	if NewSaver(Options{Tasks: &env.Tasks{Runtime: &bench{}}}).Holds(c) {
		t.Error("without a folder")
	}
}
