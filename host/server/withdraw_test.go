package server

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

// TestHostWithdrawsAfterItsKeyWasUsed uses the host's key as authority, with nonces of a later time
// than the host's. It checks that vanished participants are still withdrawn, and that a replay of
// the journal gives the same state.
func TestHostWithdrawsAfterItsKeyWasUsed(t *testing.T) {
	const host = 50
	dir := t.TempDir()
	observe := func(connect func() *peer) (*peer, coordinator.State) {
		p := connect()
		p.greet(host, frame.RoleObserver)
		p.welcome()
		state, err := coordinator.Decode(p.expect(frame.TypeState))
		if err != nil {
			p.t.Fatal(err)
		}
		return p, state
	}
	bubble(t, func(o *Options) {
		o.Key, o.SaveStateDir, o.WithdrawGrace = backendtest.Key(host), dir, DefaultWithdrawGrace
	}, func(t *testing.T, connect func() *peer) {
		for i := range byte(2) {
			participant := connect().enter(1 + i)
			participant.submit(coordinator.Join{})
			time.Sleep(time.Second)
			authority, before := observe(connect)
			authority.submit(coordinator.SetPaused{Paused: i == 0})
			_ = authority.socket.Close()
			_ = participant.socket.Close()
			time.Sleep(DefaultWithdrawGrace + time.Second)
			watcher, after := observe(connect)
			_ = watcher.socket.Close()
			if len(before.Pending) != 1 || after.Authority.MainNonce <= before.Authority.MainNonce {
				t.Fatalf("%d pending before, nonce of the main authority %d and then %d", len(before.Pending), before.Authority.MainNonce, after.Authority.MainNonce)
			}
			if len(after.Pending) != 0 {
				t.Fatal("a disconnected participant was not withdrawn")
			}
		}
	})
	log, _, err := Replay(JournalPath(dir, hostileRun), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(log.State.Pending) != 0 || log.State.RunState != coordinator.WaitingForMembers {
		t.Errorf("the replay of the journal leads to %d pending, %s", len(log.State.Pending), log.State.RunState)
	}
}

// TestRestartWaitsForClients restarts a server whose clients retry only after a pause that grew
// while it was away. It checks that a client that comes back within the pause is not withdrawn, and
// that a missing client is.
func TestRestartWaitsForClients(t *testing.T) {
	dir := t.TempDir()
	options := func(o *Options) {
		o.Key, o.SaveStateDir, o.WithdrawGrace = backendtest.Key(50), dir, DefaultWithdrawGrace
	}
	pending := func() int {
		log, _, err := Replay(JournalPath(dir, hostileRun), nil)
		if err != nil {
			t.Fatal(err)
		}
		return len(log.State.Pending)
	}
	bubble(t, options, func(t *testing.T, connect func() *peer) {
		for n := range byte(2) {
			connect().enter(1 + n).submit(coordinator.Join{})
			time.Sleep(time.Millisecond)
		}
	})
	bubble(t, options, func(t *testing.T, connect func() *peer) {
		time.Sleep(2*frame.LongestPause - time.Second)
		if n := pending(); n != 2 {
			t.Fatalf("%d of 2 clients are left before they had time to come back", n)
		}
		back := connect().enter(1)
		go back.alive()
		time.Sleep(2 * time.Second)
		if n := pending(); n != 1 {
			t.Fatalf("%d clients remain, want the returned client", n)
		}
		_ = back.socket.Close()
		time.Sleep(DefaultWithdrawGrace + time.Second)
		if n := pending(); n != 0 {
			t.Fatal("after its return the client has more than the grace period of a running server")
		}
	})
}

// TestLivingClientsAreNotWithdrawn checks a client that loses its connection, fails to reconnect
// while its network is away, and reconnects after the longest pause between attempts.
func TestLivingClientsAreNotWithdrawn(t *testing.T) {
	var withdrawn atomic.Bool
	bubble(t, func(o *Options) {
		o.WithdrawGrace = 0 // the default
		o.OnState = func(s *coordinator.State) { withdrawn.Store(len(s.Pending) == 0) }
	}, func(t *testing.T, connect func() *peer) {
		p := connect().enter(1)
		p.submit(coordinator.Join{})
		time.Sleep(time.Second)
		_ = p.socket.Close()
		time.Sleep(2*frame.LongestPause - time.Second)
		if withdrawn.Load() {
			t.Error("a client that is reconnecting was withdrawn")
		}
		time.Sleep(2 * time.Second)
		if !withdrawn.Load() {
			t.Error("a client that does not come back is not withdrawn")
		}
	})
}
