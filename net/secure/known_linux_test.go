package secure

import (
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"
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
	signal.Ignore(syscall.SIGXFSZ)
	defer signal.Reset(syscall.SIGXFSZ)
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	full := limit
	full.Cur = uint64(len(before)) + 20
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &full); err != nil {
		t.Fatal(err)
	}
	err = known.Check("host:2")(key(2).ID())
	if failed := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); failed != nil {
		t.Fatal(failed)
	}
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
