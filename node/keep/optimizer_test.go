package keep

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/node/clienttest"
)

// momentum writes that of a trainer that has none.
func momentum(path string) error { return os.WriteFile(path, make([]byte, 8), 0o600) }

// TestOptimizersArePruned keeps the newest states of this run and key, removes what was not written to its end, and
// leaves alone what belongs to others.
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
	// A process was killed as it wrote one, and so was that of another key, whose it is to remove.
	unfinished := func(f Folder) string {
		name := filepath.Base(f.Optimizer(9, [32]byte{}))
		return filepath.Join(f.Dir, optimizerFolder, "."+name+".ABCD")
	}
	for _, f := range []Folder{folder, other} {
		if err := os.WriteFile(unfinished(f), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want = append(want, unfinished(other))
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

// TestOptimizerBelongsToOneModel, one run and one key; a damaged one is said.
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
