package server_test

import (
	"encoding/json"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/host/server/servertest"
	"github.com/psyche-go/psyche/host/server/status"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

// TestNamesOfClients checks a client with a name and a client whose name contains a terminal
// escape. The status and observers receive only the first name, also after a restart with and
// without a snapshot.
func TestNamesOfClients(t *testing.T) {
	dir := t.TempDir()
	var got atomic.Pointer[core.Names] // names passed to the server's owner
	serve := func(t *testing.T, every int) (r *servertest.Server, web string) {
		t.Helper()
		o := options(dir)
		o.SnapshotEvery, o.HTTPListen = every, "127.0.0.1:0"
		got.Store(nil)
		o.OnNames = func(_ string, names core.Names) { got.Store(&names) }
		ready := make(chan net.Addr, 1)
		o.HTTPReady = func(a net.Addr) { ready <- a }
		r = servertest.Start(t, o)
		return r, (<-ready).String()
	}
	check := func(t *testing.T, r *servertest.Server, web string) {
		t.Helper()
		watcher, err := tcp.Dial(t.Context(), tcp.Options{Addr: r.Address, RunID: runID, Key: backendtest.Key(9), Observe: true})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = watcher.Close() }()
		for u := range watcher.Updates() {
			i := slices.IndexFunc(u.Peers, func(p backend.Peer) bool { return p.ID == backendtest.Key(1).ID() })
			if i < 0 || len(u.Peers) < 2 {
				continue // the client has not announced its addresses yet
			}
			if u.Peers[i].Name != "Ada" || u.Peers[1-i].Name != "" {
				t.Errorf("an observer receives %+v", u.Peers)
			}
			break
		}
		_, body := get(t, web, "/state?run="+runID)
		var run status.Run
		if err := json.Unmarshal([]byte(body), &run); err != nil {
			t.Fatal(err)
		}
		if len(run.Names) != 1 || run.Names[backendtest.Key(1).ID().String()] != "Ada" {
			t.Errorf("the status names %q", run.Names)
		}
		if names := got.Load(); names == nil || len(*names) != 1 || (*names)[backendtest.Key(1).ID()] != "Ada" {
			t.Errorf("the server's owner receives %v", names)
		}
	}

	r, web := serve(t, 2)
	submit(t, dial(t, r.Address, 1), coordinator.Join{Name: "Ada"})
	submit(t, dial(t, r.Address, 2), coordinator.Join{Name: "\x1b[2J"})
	check(t, r, web)
	r.Stop()
	if !strings.HasPrefix(string(read(t, server.SnapshotPath(dir, runID))), "psychesnap/18\n") {
		t.Error("the snapshot does not contain the names")
	}
	for name, lose := range map[string]bool{"from the snapshot": false, "from the journal": true} {
		t.Run(name, func(t *testing.T) {
			if lose {
				write(t, server.SnapshotPath(dir, runID), nil)
			}
			r, web := serve(t, 1000)
			dial(t, r.Address, 1)
			dial(t, r.Address, 2)
			check(t, r, web)
			r.Stop()
		})
	}
}
