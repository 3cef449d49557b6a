package server

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

// listening serves a run on this machine until the test ends.
func listening(t *testing.T, change func(*Options), prepare func(*server)) string {
	t.Helper()
	o := Options{Runs: []Genesis{backendtest.Genesis(hostileRun, 3)}, WithdrawGrace: -1}
	change(&o)
	o.setDefaults()
	listener, err := Listen(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s, err := newServer(o)
	if err != nil {
		t.Fatal(err)
	}
	prepare(s)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.serve(ctx, listener, nil); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		cancel()
		serving.Wait()
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}

// withJournal starts a server with a journal of at least the given size. It contains zeros in place
// of records, because the server does not read records to export them.
func withJournal(t *testing.T, size int, change func(*Options)) string {
	t.Helper()
	return listening(t, func(o *Options) {
		o.SaveStateDir = t.TempDir()
		change(o)
	}, func(s *server) {
		h := s.find(hostileRun)
		for h.store.journal.Size() < int64(size) {
			if err := errors.Join(h.store.journal.Append(make([]byte, 64<<10)), h.store.journal.Commit()); err != nil {
				t.Fatal(err)
			}
		}
		h.logSize.Store(h.store.journal.Size())
	})
}

// TestLogReadersHoldLittleMemory lets connections request the journal repeatedly without reading
// the answers.
func TestLogReadersHoldLittleMemory(t *testing.T) {
	const connections, perConnection = 100, 128 << 10
	address := withJournal(t, 1<<20, func(o *Options) { o.LogBytesPerSecond = 1 << 30 })
	before := memoryInUse()
	for i := range connections {
		socket, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = socket.Close() })
		if err := socket.(*net.TCPConn).SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
		secured := enterAs(t, socket, identity.FromSeed([identity.SeedSize]byte{byte(i), 10}))
		ask(t, secured, 40)
	}
	time.Sleep(time.Second) // the requests have arrived, and no connection has been cut off yet
	each := float64(memoryInUse()-min(before, memoryInUse())) / connections
	t.Logf("%d connections that read nothing use %.0f KiB each, including their clients", connections, each/1024)
	if each > perConnection {
		t.Errorf("a connection uses %.0f KiB, want at most %d", each/1024, perConnection>>10)
	}
}

func ask(t *testing.T, to io.Writer, times int) {
	t.Helper()
	var frames []byte
	for range times {
		frames = frame.Append(frames, frame.TypeReadLog, frame.ReadLog{}.AppendTo(nil))
	}
	if _, err := to.Write(frames); err != nil {
		t.Fatal(err)
	}
}

// TestLogExportHasABudget lets some clients read the journal as fast as they receive it.
func TestLogExportHasABudget(t *testing.T) {
	const clients, parts, rate = 4, 6, 2 << 20
	address := withJournal(t, frame.MaxLogPart, func(o *Options) { o.LogBytesPerSecond = rate })
	began := time.Now()
	var reading sync.WaitGroup
	for i := range clients {
		socket, err := new(net.Dialer).DialContext(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = socket.Close() })
		secured := enterAs(t, socket, identity.FromSeed([identity.SeedSize]byte{byte(i), 11}))
		ask(t, secured, parts)
		reading.Go(func() {
			reader := frame.NewReader(secured)
			for got := 0; got < parts; {
				kind, payload, err := reader.Next(frame.MaxToClient)
				if err != nil {
					t.Error(err)
					return
				}
				if kind == frame.TypeLog {
					got++
					if log, err := frame.DecodeLog(payload); err != nil || len(log.Part) != frame.MaxLogPart || log.Size < frame.MaxLogPart {
						t.Errorf("a part of %d bytes of %d, %v", len(log.Part), log.Size, err)
					}
				}
			}
		})
	}
	reading.Wait()
	want := (clients*parts*frame.MaxLogPart - rate) * time.Second / rate
	if took := time.Since(began); took < want-100*time.Millisecond {
		t.Errorf("%d parts took %v, want %v: %d bytes a second after a burst of the same size", clients*parts, took, want, rate)
	}
}

// The tests from outside the package use these names.
var (
	DrawsPath    = drawsPath
	ErrOtherRun  = errOtherRun
	SnapshotPath = snapshotPath
)
