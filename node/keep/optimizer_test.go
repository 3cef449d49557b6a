package keep

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/node/clienttest"
)

// momentum writes the momentum of a trainer that has none.
func momentum(path string) error { return os.WriteFile(path, make([]byte, 8), 0o600) }

// TestOptimizersArePruned checks that the newest states of this run and key are kept, and that
// files of other runs and keys are not touched.
func TestOptimizersArePruned(t *testing.T) {
	folder := Folder{Dir: t.TempDir(), RunID: "my run", ID: clienttest.Key(1).ID()}
	other, elsewhere := folder, folder
	other.ID, elsewhere.RunID = clienttest.Key(2).ID(), "another"
	var want []string
	for _, f := range []Folder{other, elsewhere} {
		for step := range uint32(keptOptimizers) {
			want = append(want, f.Optimizer(step+1, [32]byte{}))
		}
	}
	for _, path := range want {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []uint32{9, 10, 100} {
		if err := folder.SaveOptimizer(momentum, step, [32]byte{byte(step)}); err != nil {
			t.Fatal(err)
		}
	}
	want = append(want, folder.Optimizer(10, [32]byte{10}), folder.Optimizer(100, [32]byte{100}))
	got, err := filepath.Glob(filepath.Join(folder.Dir, optimizerFolder, "*"))
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %s\nwant %s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestOptimizerAfterTheHostWentBack checks that the optimizer state for the run's present model is
// kept after the host went back, and that the states of forgotten steps are removed.
func TestOptimizerAfterTheHostWentBack(t *testing.T) {
	folder := Folder{Dir: t.TempDir(), RunID: "run", ID: clienttest.Key(1).ID()}
	for _, step := range []uint32{80, 90, 60} {
		if err := folder.SaveOptimizer(momentum, step, [32]byte{byte(step)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(folder.Optimizer(60, [32]byte{60})); err != nil {
		t.Error(err)
	}
	if err := folder.SaveOptimizer(momentum, 63, [32]byte{63}); err != nil {
		t.Fatal(err)
	}
	got, err := filepath.Glob(filepath.Join(folder.Dir, optimizerFolder, "*"))
	if want := []string{folder.Optimizer(60, [32]byte{60}), folder.Optimizer(63, [32]byte{63})}; err != nil || !slices.Equal(got, want) {
		t.Errorf("left %q, %v", got, err)
	}
}

// TestTornOptimizersAreRemoved checks that the partly written momentum of a killed process is
// removed when the next one is written. Other files are not touched.
func TestTornOptimizersAreRemoved(t *testing.T) {
	folder := Folder{Dir: t.TempDir(), RunID: "run", ID: clienttest.Key(1).ID()}
	other, elsewhere := folder, folder
	other.ID, elsewhere.RunID = clienttest.Key(2).ID(), "another"
	torn := func(f Folder, step uint32) string {
		path := f.Optimizer(step, [32]byte{byte(step)})
		return filepath.Join(filepath.Dir(path), safetensors.UnfinishedName(filepath.Base(path)))
	}
	want := []string{torn(other, 3), torn(elsewhere, 3), folder.Optimizer(3, [32]byte{3})}
	for _, path := range append(want, torn(folder, 2), torn(folder, 3)) {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := folder.SaveOptimizer(momentum, 4, [32]byte{4}); err != nil {
		t.Fatal(err)
	}
	want = append(want, folder.Optimizer(4, [32]byte{4}))
	entries, err := os.ReadDir(filepath.Join(folder.Dir, optimizerFolder))
	var got []string
	for _, entry := range entries {
		got = append(got, filepath.Join(folder.Dir, optimizerFolder, entry.Name()))
	}
	slices.Sort(want)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %s\nwant %s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestOptimizerBelongsToOneModel checks that a state belongs to one model, one run and one key, and
// that a damaged state is reported.
func TestOptimizerBelongsToOneModel(t *testing.T) {
	folder := Folder{Dir: t.TempDir(), RunID: "run", ID: clienttest.Key(1).ID()}
	digest := [32]byte{7}
	if err := folder.SaveOptimizer(momentum, 3, digest); err != nil {
		t.Fatal(err)
	}
	other, elsewhere := folder, folder
	other.ID, elsewhere.RunID = clienttest.Key(2).ID(), "another"
	for name, test := range map[string]struct {
		folder Folder
		step   uint32
		digest [32]byte
		found  bool
	}{
		"its own":          {folder, 3, digest, true},
		"of another step":  {folder, 4, digest, false},
		"of another model": {folder, 3, [32]byte{8}, false},
		"of another key":   {other, 3, digest, false},
		"of another run":   {elsewhere, 3, digest, false},
	} {
		found, err := test.folder.RestoreOptimizer(t.Context(), &clienttest.Trainer{}, test.step, test.digest)
		if err != nil || found != test.found {
			t.Errorf("%s: found %v, %v", name, found, err)
		}
	}
	if err := os.WriteFile(folder.Optimizer(3, digest), []byte("?"), 0o600); err != nil {
		t.Fatal(err)
	}
	found, err := folder.RestoreOptimizer(t.Context(), &clienttest.Trainer{}, 3, digest)
	if !found || !errors.Is(err, clienttest.ErrFake) || !strings.Contains(err.Error(), folder.Optimizer(3, digest)) {
		t.Errorf("damaged: found %v, %v", found, err)
	}
}
