// Package servertest runs a server within a test.
package servertest

import (
	"cmp"
	"context"
	"net"
	"testing"

	"github.com/psyche-go/psyche/host/server"
)

// Server is a running server.
type Server struct {
	Address string // listening address

	t      testing.TB
	cancel context.CancelFunc
	done   chan struct{}
	err    error // valid once done is closed
}

// Start runs a server until the test ends or Stop is called. It uses a free port of this machine
// unless the options specify one.
func Start(t testing.TB, o server.Options) *Server {
	t.Helper()
	o.Listen = cmp.Or(o.Listen, "127.0.0.1:0")
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	s := &Server{t: t, cancel: cancel, done: make(chan struct{})}
	ready := make(chan net.Addr, 1)
	o.Ready = func(a net.Addr) { ready <- a }
	go func() {
		defer close(s.done)
		s.err = server.Run(ctx, o)
	}()
	select {
	case a := <-ready:
		s.Address = a.String()
		t.Cleanup(s.Stop)
	case <-s.done:
		cancel()
		t.Fatalf("server: %v", s.err)
	}
	return s
}

// Stop ends the server and waits for it. It may be called more than once.
func (s *Server) Stop() {
	s.cancel()
	<-s.done
	if s.err != nil {
		s.t.Errorf("server: %v", s.err)
		s.err = nil // reported once
	}
}
