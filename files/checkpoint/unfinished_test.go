package checkpoint

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// writerVariable makes the test program write a checkpoint to the folder in its value, without ever
// finishing it.
const writerVariable = "PSYCHE_TEST_WRITE_FOR_EVER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(writerVariable); dir != "" {
		if err := WriteDir(dir, tiny(), Extra{Name: "optimizer.safetensors", Write: func(string) error {
			_, _ = os.Stdout.WriteString("writing\n")
			_, _ = os.Stdin.Read(make([]byte, 1)) // never comes
			return nil
		}}); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// tiny is a checkpoint without tensors.
func tiny() Snapshot {
	return Snapshot{Files: []File{{Name: ConfigFile, Data: []byte(`{"architectures":["Fake"]}`)}}}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	return found
}

// TestKilledWriterLeavesNothing kills a process that writes a checkpoint. The next writer in the
// folder removes its files, but not while the other process lives.
func TestKilledWriterLeavesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), writerVariable+"="+dir)
	input, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = input.Close() }()
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(output).ReadString('\n'); line != "writing\n" {
		t.Fatalf("output of the other process: %q, %v", line, err)
	}
	if err := WriteDir(dir, tiny()); err != nil {
		t.Fatal(err)
	}
	if found := names(t, filepath.Dir(dir)); len(found) != 2 {
		t.Errorf("while a different process writes: %q", found)
	}
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait() // killed
	if err := WriteDir(dir, tiny()); err != nil {
		t.Fatal(err)
	}
	if found := names(t, filepath.Dir(dir)); !slices.Equal(found, []string{"model"}) {
		t.Errorf("after it was killed: %q", found)
	}
}

// TestRemoveUnfinished checks that all files are left that may belong to a user.
func TestRemoveUnfinished(t *testing.T) {
	parent := t.TempDir()
	id := strings.Repeat("A", 26)
	kept := []string{".model." + id[1:], ".model." + id[1:] + "a", "model." + id, ".." + id, ".other." + id, ".model." + strings.Repeat("B", 26)}
	for _, name := range append(slices.Clone(kept), ".model."+id) {
		if err := os.Mkdir(filepath.Join(parent, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, folder := range []string{kept[5]} { // with a folder in it
		if err := os.Mkdir(filepath.Join(parent, folder, "mine"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	link := ".model." + strings.Repeat("C", 26)
	if err := os.Symlink(parent, filepath.Join(parent, link)); err != nil {
		t.Fatal(err)
	}
	kept = append(kept, link)
	if err := RemoveUnfinished(parent, func(name string) bool { return name == "model" }); err != nil {
		t.Fatal(err)
	}
	slices.Sort(kept)
	if found := names(t, parent); !slices.Equal(found, kept) {
		t.Errorf("left %q, want %q", found, kept)
	}
}

// TestFoldersFilledTogether checks that all processes that fill one folder at the same time succeed, and that one of
// their folders is complete at the end.
func TestFoldersFilledTogether(t *testing.T) {
	for range 50 {
		dir := filepath.Join(t.TempDir(), "model")
		var all sync.WaitGroup
		start := make(chan struct{})
		for range 4 {
			all.Go(func() {
				<-start
				if err := FillDir(dir, func(temporary string) error {
					return os.WriteFile(filepath.Join(temporary, ConfigFile), []byte("{}"), 0o600)
				}); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		all.Wait()
		entries, err := os.ReadDir(filepath.Dir(dir))
		if err != nil || len(entries) != 1 || entries[0].Name() != "model" {
			t.Fatalf("the folder contains %v, %v", entries, err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, ConfigFile)); err != nil || string(text) != "{}" {
			t.Fatalf("got %q, %v; want nil error and string(text) == \"{}\"", text, err)
		}
	}
}
