package secure

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/psyche-go/psyche/base/disktest"
)

// TestKnownServersOnAFullDisk checks that a partly written line is an error and leaves the file
// unchanged, so that other servers can still be checked.
func TestKnownServersOnAFullDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "known_servers")
	known := &KnownServers{Path: path}
	if err := known.Check("host:1")(key(1).ID()); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	disktest.Full(t, int64(len(before))+20, func() { err = known.Check("host:2")(key(2).ID()) })
	if err == nil {
		t.Error("a line was added to a full file system")
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Errorf("the file contains %q, %v", after, err)
	}
	if err := known.Check("host:3")(key(3).ID()); err != nil {
		t.Error(err)
	}
}
