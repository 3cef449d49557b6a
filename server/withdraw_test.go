package server

import (
	"testing"
	"time"

	"github.com/psyche-go/psyche/backend/backendtest"
	"github.com/psyche-go/psyche/backend/tcp/frame"
	"github.com/psyche-go/psyche/coordinator"
)

// TestHostWithdrawsAfterItsKeyWasUsed governs the run with the host's key, with nonces of a
// later time than the host's own: participants that vanish are still withdrawn, and the
// journal leads to the same state.
func TestHostWithdrawsAfterItsKeyWasUsed(t *testing.T) {
	const host = 50
	dir := t.TempDir()
	observe := func(connect func() *peer) (*peer, coordinator.State) {
		p := connect()
		p.greet(host, frame.RoleObserver)
		p.expect(frame.TypeWelcome)
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
				t.Fatal("a participant whose connection is gone was not withdrawn")
			}
		}
	})
	state, _, err := Replay(JournalPath(dir, hostileRun), nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(state.Pending) != 0 || state.RunState != coordinator.WaitingForMembers {
		t.Errorf("the replay of the journal leads to %d pending, %s", len(state.Pending), state.RunState)
	}
}
