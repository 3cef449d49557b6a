package server

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

// TestBrokenJournalStopsOneRun breaks the journal of one of two runs. The other run must continue.
func TestBrokenJournalStopsOneRun(t *testing.T) {
	const broken = "broken"
	o := Options{
		Runs:         []Genesis{backendtest.Genesis(hostileRun, 3), backendtest.Genesis(broken, 3)},
		SaveStateDir: t.TempDir(), WithdrawGrace: -1,
	}
	o.setDefaults()
	listener, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := newServer(o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.find(broken).store.journal.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.serve(ctx, listener, nil); err == nil || !strings.Contains(err.Error(), broken) {
			t.Errorf("the server ends with %v, want the error of the broken run", err)
		}
		_ = s.close() // one journal is already closed
	})
	defer serving.Wait()
	defer cancel()
	connect := func() *peer {
		socket, err := new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		context.AfterFunc(ctx, func() { _ = socket.Close() })
		return secured(t, socket)
	}
	p := connect()
	p.hello(1, broken)
	p.welcome()
	p.send(frame.TypeSubmit, signed(1, p.run, coordinator.Join{}))
	p.refused(frame.RefusedShutdown)
	p = connect()
	p.hello(2, broken)
	p.refused(frame.RefusedShutdown)
	works(t, connect)
}
