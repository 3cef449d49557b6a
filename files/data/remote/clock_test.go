package remote

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/clocktest"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/data/serve"
	"github.com/psyche-go/psyche/net/secure"
)

// jumpingConn is a connection of a machine whose wall clock jumps whenever a deadline is set. It
// counts deadlines that are not in the future, or not soon, after the jump.
type jumpingConn struct {
	net.Conn
	by         time.Duration
	set, wrong *atomic.Int64
}

func (c jumpingConn) jump(at time.Time) time.Time {
	at = clocktest.Jump(at, c.by)
	c.set.Add(1)
	if left := time.Until(at); left <= 0 || left > frameTimeout {
		c.wrong.Add(1)
	}
	return at
}

func (c jumpingConn) SetDeadline(at time.Time) error      { return c.Conn.SetDeadline(c.jump(at)) }
func (c jumpingConn) SetReadDeadline(at time.Time) error  { return c.Conn.SetReadDeadline(c.jump(at)) }
func (c jumpingConn) SetWriteDeadline(at time.Time) error { return c.Conn.SetWriteDeadline(c.jump(at)) }

// ones is a source in which all tokens are 1.
type ones struct{}

func (ones) Len() uint64  { return 1000 }
func (ones) Close() error { return nil }

func (ones) Batch(_ context.Context, id assign.BatchID) (data.Batch, error) {
	b := data.Batch{ID: id}
	for range id.Len() {
		b.Sequences = append(b.Sequences, []int32{1, 1, 1})
	}
	return b, nil
}

// startServer starts a data server for a run with one member. It returns its address and the
// member's batch.
func startServer(t *testing.T, server, member identity.Key) (address string, batch assign.BatchID) {
	t.Helper()
	s, err := serve.New(serve.Options{Key: server, RunID: "run", Source: ones{}, SeqLen: 2})
	if err != nil {
		t.Fatal(err)
	}
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() { s.Run(ctx, listener) })
	t.Cleanup(func() { cancel(); serving.Wait() })
	id := coordinator.ClientID(member.ID())
	state := &coordinator.State{RunID: "run"}
	state.Epoch.Clients = []coordinator.Client{{ID: id}}
	state.Epoch.Rounds = []coordinator.Round{{Step: 1, BatchSize: 3, Members: []coordinator.ClientID{id}}}
	s.Update(state, [32]byte{1})
	return listener.Addr().String(), state.Epoch.Rounds[0].Assignments(state.Config)[0].Batch
}

// TestClockJumps checks that a member whose clock is set while it connects and reads still gets its
// data, and still notices a server that stays silent: every deadline stays right.
func TestClockJumps(t *testing.T) {
	server, member := identity.FromSeed([identity.SeedSize]byte{1}), identity.FromSeed([identity.SeedSize]byte{2})
	for _, by := range []time.Duration{time.Hour, -time.Hour, 24 * time.Hour, -24 * time.Hour} {
		t.Run(fmt.Sprint(by), func(t *testing.T) {
			address, id := startServer(t, server, member)
			var set, wrong atomic.Int64
			c, err := Open(t.Context(), Options{
				Addr: address, Inner: true, Trust: secure.Pin(server.ID()), RunID: "run", Key: member, SeqLen: 2, Timeout: 5 * time.Second,
				wrap: func(conn net.Conn) net.Conn { return jumpingConn{conn, by, &set, &wrong} },
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = c.Close() }()
			for range 3 {
				if batch, err := c.Batch(t.Context(), id); err != nil || len(batch.Sequences) != 3 {
					t.Fatalf("%d sequences: %v", len(batch.Sequences), err)
				}
			}
			if set.Load() < 6 || wrong.Load() > 0 {
				t.Errorf("%d of %d deadlines are wrong after the jump", wrong.Load(), set.Load())
			}
		})
	}
}
