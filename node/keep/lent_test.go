package keep

import (
	"context"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/safetensors"
)

// lentModel returns a model with a large tensor of several pieces and a small tensor.
func lentModel(step uint32) checkpoint.Snapshot {
	data := make([]byte, 3*lentPiece+4)
	for i := range data {
		data[i] = byte(i*i + int(step))
	}
	return checkpoint.Snapshot{
		Step:  step,
		Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: []byte(`{"architectures":["Fake"]}`)}},
		Tensors: []safetensors.Tensor{
			{Name: "a", DType: "F32", Shape: []int64{int64(len(data) / 4)}, Data: data},
			{Name: "b", DType: "F32", Shape: []int64{1}, Data: []byte{1, 2, 3, byte(step)}},
		},
	}
}

func hashed(_ checkpoint.Snapshot, dir string) ([32]byte, error) {
	return checkpoint.DigestDir(context.Background(), dir, nil)
}

// offer lends a model and overwrites it afterwards.
func offer(ctx context.Context, l *Lent, s checkpoint.Snapshot) (done chan error) {
	done = make(chan error, 1)
	go func() {
		err := l.Offer(ctx, s)
		for _, tensor := range s.Tensors {
			clear(tensor.Data)
		}
		done <- err
	}()
	return done
}

// TestIntermediateCheckpointIsWrittenFromMemory checks that the folder contains the model as it was
// lent, also if it replaces a different model of the same step.
func TestIntermediateCheckpointIsWrittenFromMemory(t *testing.T) {
	f := Folder{Dir: filepath.Join(t.TempDir(), "disk"), RunID: "run"}
	other := lentModel(9)
	other.Tensors[1].Data[0]++
	facts := checkpoint.Facts{RunID: "run", Step: 9}
	if err := f.SaveIntermediate(other, checkpoint.Facts{RunID: "run", Step: 9, Digest: hexDigest(other)}); err != nil {
		t.Fatal(err)
	}
	l := NewLent()
	done := offer(t.Context(), l, lentModel(9))
	got, err := l.Save(t.Context(), f.Intermediate(9), facts, hashed)
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	want := lentModel(9)
	if got.Digest != hexDigest(want) || got.Step != 9 {
		t.Errorf("facts %+v", got)
	}
	if _, err := f.FindIntermediate(9, want.Manifest().Digest()); err != nil {
		t.Error(err)
	}
	if read, err := f.Intermediates().Read(9, want.Manifest().Digest()); err != nil || len(read.Tensors) != 2 {
		t.Errorf("%d tensors, %v", len(read.Tensors), err)
	}
}

// TestLentModelIsNotReadAfterItsReturn checks that a model is not read after its owner has taken it
// back, and that no partial model remains.
func TestLentModelIsNotReadAfterItsReturn(t *testing.T) {
	for _, offered := range []bool{true, false} {
		f := Folder{Dir: filepath.Join(t.TempDir(), "disk"), RunID: "run"}
		l := NewLent()
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if offered {
			if err := <-offer(over, l, lentModel(9)); !errors.Is(err, ErrNotTaken) {
				t.Errorf("lending ended with %v", err)
			}
		}
		l.End()
		if _, err := l.Save(t.Context(), f.Intermediate(9), checkpoint.Facts{RunID: "run", Step: 9}, hashed); !errors.Is(err, ErrNotTaken) {
			t.Errorf("saving ended with %v", err)
		}
		if entries, err := os.ReadDir(f.Dir); len(entries) > 0 {
			t.Errorf("left are %v, %v", entries, err)
		}
	}
}

// TestOwnerDoesNotWaitForAFailingDisk checks that an owner does not wait for a disk that fails.
func TestOwnerDoesNotWaitForAFailingDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(dir, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	l := NewLent()
	done := offer(t.Context(), l, lentModel(9))
	_, err := l.Save(t.Context(), Folder{Dir: dir, RunID: "run"}.Intermediate(9), checkpoint.Facts{RunID: "run", Step: 9}, hashed)
	if lent := <-done; err == nil || !errors.Is(err, lent) {
		t.Errorf("lending ended with %v, saving with %v", lent, err)
	}
}

func hexDigest(s checkpoint.Snapshot) string {
	digest := s.Manifest().Digest()
	return hex.EncodeToString(digest[:])
}

// TestPutDown checks that a model that was written directly to its folder at the end of its epoch
// gets its final name when the run has recorded it, also if an earlier model is saved in the
// meantime, or a different model of the same step exists. It may be reported at once.
func TestPutDown(t *testing.T) {
	for _, way := range []string{"alone", "beside an earlier one", "another in its place", "found before", "gone"} {
		t.Run(way, func(t *testing.T) {
			b := newBench(filepath.Join(t.TempDir(), "disk"), 0)
			m := modelOf(9)
			l := NewLent()
			done := offer(t.Context(), l, m.Snapshot)
			_, err := l.Save(t.Context(), b.Folder.Pending(9), checkpoint.Facts{RunID: b.Folder.RunID, Step: 9, Digest: "later"}, hashed)
			if err := errors.Join(err, <-done); err != nil {
				t.Fatal(err)
			}
			m.Snapshot.Tensors, m.Stored = nil, true
			if way == "beside an earlier one" {
				b.Take(modelOf(6))
				b.SaveAgreed(stateAfter(6, recorded(modelOf(6))))
				b.work()
			}
			s := stateAfter(9, recorded(m))
			s.RunState = coordinator.Cooldown
			b.Take(m)
			if !b.Ahead(s) {
				t.Error("the report waits for a model that is on the disk")
			}
			switch way {
			case "another in its place":
				other := modelOf(9)
				other.Snapshot.Tensors[0].Data[0]++
				facts := checkpoint.Facts{RunID: b.Folder.RunID, Step: 9, Digest: hexDigest(other.Snapshot)}
				if err := writeCheckpoint(b.Folder.Checkpoint(9), other.Snapshot, facts.Extra()); err != nil {
					t.Fatal(err)
				}
			case "found before":
				if _, err := b.Folder.Find(9, m.Digest); err != nil {
					t.Fatal(err)
				}
			case "gone":
				if err := os.RemoveAll(b.Folder.Pending(9)); err != nil {
					t.Fatal(err)
				}
			}
			s.RunState = coordinator.WaitingForMembers
			b.SaveAgreed(s)
			b.work()
			if read, err := b.Folder.Read(9, m.Digest); (err == nil) == (way == "gone") || (b.Err() == nil) == (way == "gone") {
				t.Errorf("%d tensors, %v; saver: %v", len(read.Tensors), err, b.Err())
			}
			if _, err := os.Stat(b.Folder.Pending(9)); err == nil {
				t.Error("the model is still pending")
			}
		})
	}
}
