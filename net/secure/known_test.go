package secure

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/filelock"
	"github.com/psyche-go/psyche/base/identity"
)

// TestKnownServersWhileOneIsAdded checks that a half-written line of another program delays Check
// until the line is complete.
func TestKnownServersWhileOneIsAdded(t *testing.T) {
	if !filelock.Supported {
		t.Skip("this system has no locks")
	}
	path := filepath.Join(t.TempDir(), "known_servers")
	file, err := filelock.Open(path, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	line := "host:1 " + key(1).ID().String() + "\n"
	_, err = file.WriteString(line[:20])
	time.AfterFunc(300*time.Millisecond, func() {
		_, err := file.WriteString(line[20:])
		if err := errors.Join(err, file.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(err, (&KnownServers{Path: path}).Check("host:1")(key(1).ID())); err != nil {
		t.Error(err)
	}
}

// TestKnownServersWhileAUserReads checks that a program that is still reporting a new server to its
// user does not block other programs.
func TestKnownServersWhileAUserReads(t *testing.T) {
	path := filepath.Join(t.TempDir(), "known_servers")
	telling, read := make(chan struct{}), make(chan struct{})
	slow := &KnownServers{Path: path, FirstUse: func(string, identity.ID) { close(telling); <-read }}
	done := make(chan error)
	go func() { done <- slow.Check("host:1")(key(1).ID()) }()
	<-telling
	if err := (&KnownServers{Path: path}).Check("host:2")(key(2).ID()); err != nil {
		t.Error(err)
	}
	close(read)
	if err := <-done; err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
}
