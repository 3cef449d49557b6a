package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/files/safetensors"
)

// TestRemoveDirGivesUpTheNameFirst queries the system for the name of a checkpoint's file at its
// removal. A process that is killed meanwhile leaves files that RemoveUnfinished removes, and never
// half a checkpoint.
func TestRemoveDirGivesUpTheNameFirst(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "model")
	if err := os.Mkdir(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	config, err := os.Create(filepath.Join(dir, ConfigFile))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = config.Close() }()
	if err := RemoveDir(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder is still there: %v", err)
	}
	last, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", config.Fd()))
	if err != nil {
		t.Skip("no /proc: ", err)
	}
	name := filepath.Base(filepath.Dir(strings.TrimSuffix(last, " (deleted)")))
	if base, ok := safetensors.Unfinished(name); !ok || base != "model" {
		t.Errorf("its file was removed from the folder %s", name)
	}
	if err := RemoveDir(dir); err != nil {
		t.Errorf("of a missing folder: %v", err)
	}
}
