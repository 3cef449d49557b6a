package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/release"
	"github.com/psyche-go/psyche/cmd/internal/buildinfo"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/host/server/servertest"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/node/supervisor"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

// TestServeLooks queries a real server and checks that it is distinguished from a server with a
// different key or a different run.
func TestServeLooks(t *testing.T) {
	host := servertest.Start(t, server.Options{Runs: []server.Genesis{backendtest.Genesis("run", 2)}})
	seen, err := tcp.Dial(t.Context(), tcp.Options{Addr: host.Address, RunID: "run", Key: backendtest.Key(1), Observe: true})
	if err != nil {
		t.Fatal(err)
	}
	key, genesis := seen.Host(), fmt.Sprintf("%x", seen.Run())
	if err := seen.Close(); err != nil {
		t.Fatal(err)
	}
	look := func(address string, key identity.ID, genesis, run string) supervisor.Outlook {
		me := backendtest.Key(2).ID()
		r := servedRun{key: &me, joins: trainCommand{RunID: run, hostFlags: hostFlags{ServerAddr: address, ServerKey: key.String(), Genesis: genesis}}}
		return r.lookAt(t.Context())
	}
	if got := look(host.Address, key, genesis, "run"); got.Prospect != supervisor.Open {
		t.Errorf("got %+v; want got.Prospect == supervisor.Open", got)
	}
	if got := look(host.Address, backendtest.Key(3).ID(), genesis, "run"); got.Prospect != supervisor.OtherServer {
		t.Errorf("different server: %+v", got)
	} else {
		golden.Message(t, "another server", errors.New(got.Reason), key.String(), "KEY", backendtest.Key(3).ID().String(), "WANTED")
	}
	if got := look(host.Address, key, genesis, "other"); got.Prospect != supervisor.Later {
		t.Errorf("different name: %+v", got)
	} else {
		golden.Message(t, "another name", errors.New(got.Reason))
	}
	if got := look(host.Address, key, strings.Repeat("1", 64), "run"); got.Prospect != supervisor.Hopeless {
		t.Errorf("different hash: %+v", got)
	} else {
		golden.Message(t, "another hash", errors.New(got.Reason), genesis, "GENESIS")
	}
}

// TestServeSkipsRunsForNewerVersions checks that join refuses a run for newer versions, and that the run is not open for
// serve, until the installed program was replaced.
func TestServeSkipsRunsForNewerVersions(t *testing.T) {
	host := servertest.Start(t, server.Options{
		Runs: []server.Genesis{backendtest.Genesis("run", 2)}, Requires: release.Requirement{Version: "999.0.0", Address: "https://example.com"},
	})
	seen, err := tcp.Dial(t.Context(), tcp.Options{Addr: host.Address, RunID: "run", Key: backendtest.Key(1), Observe: true})
	if err != nil {
		t.Fatal(err)
	}
	key, genesis := seen.Host(), fmt.Sprintf("%x", seen.Run())
	if err := seen.Close(); err != nil {
		t.Fatal(err)
	}
	failNaming(t, exitRefused, buildinfo.Version()+", and the host requires 999.0.0", "train", "--run-id", "run", "--server-addr", host.Address, "--server-key", key.String(), "--genesis", genesis)
	program := filepath.Join(t.TempDir(), "psyche-client")
	write(t, program, []byte("old"))
	first, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	r := servedRun{
		joins:     trainCommand{RunID: "run", hostFlags: hostFlags{ServerAddr: host.Address, ServerKey: key.String(), Genesis: genesis}},
		installed: &installed{program, first},
	}
	got := r.lookAt(t.Context())
	if got.Prospect != supervisor.Later {
		t.Errorf("got %+v; want got.Prospect == supervisor.Later", got)
	}
	golden.Message(t, "reason", errors.New(got.Reason), buildinfo.Version(), "VERSION")
	if err := os.Rename(write(t, program+".new", []byte("new")), program); err != nil {
		t.Fatal(err)
	}
	if got := r.lookAt(t.Context()); got.Prospect != supervisor.Open {
		t.Errorf("after an upgrade: %+v", got)
	}
}

// TestServeIsAlone checks that a second psyche-client serve of the same user is refused.
func TestServeIsAlone(t *testing.T) {
	t.Setenv("XDG_STATE_HOME", t.TempDir())
	lock, err := lockServing()
	if err != nil {
		t.Fatal(err)
	}
	fail(t, exitFailure, "second process", "serve", testLink().String())
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if lock, err = lockServing(); err != nil {
		t.Fatal(err)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
}
