package server_test

import (
	"crypto/sha256"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/host/server/servertest"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/backend/backendtest"
	"github.com/psyche-go/psyche/record/follow"
)

// quick returns the genesis of a run of one client with short waits.
func quick(totalSteps uint32) server.Genesis {
	return func(host coordinator.ClientID) (coordinator.State, error) {
		return coordinator.New(runID, host, coordinator.Config{
			WarmupTime: 60_000, CooldownTime: 60_000, RoundsPerEpoch: 4, MaxRoundTrainTime: 60_000, RoundWitnessTime: 50, WaitingForMembersExtraTime: 50,
			GlobalBatchSizeStart: 64, GlobalBatchSizeEnd: 64, TotalSteps: totalSteps, InitMinClients: 1, MinClients: 1,
		}, coordinator.Model{MaxSeqLen: 16, Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointDummy}})
	}
}

// TestDrawsAreThoseOfTheCommitment restarts the server between rounds. It checks that every draw in
// the journal opens the previous one, and that every draw was used by a round.
func TestDrawsAreThoseOfTheCommitment(t *testing.T) {
	dir := t.TempDir()
	o := options(dir)
	o.Runs, o.RestartGrace = []server.Genesis{quick(9)}, time.Millisecond
	for _, until := range []uint32{3, 6, 9} {
		r := servertest.Start(t, o)
		c := dial(t, r.Address, 1)
		f := &fakeClient{backend: c, id: coordinator.ClientID(backendtest.Key(1).ID())}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for u := range c.Updates() {
				if action := f.react(u.State); action != nil && c.Submit(t.Context(), action) != nil {
					*f = fakeClient{backend: c, id: f.id} // send the action again
				}
			}
		}()
		watcher, err := tcp.Dial(t.Context(), tcp.Options{Addr: r.Address, RunID: runID, Key: backendtest.Key(9), Observe: true})
		if err != nil {
			t.Fatal(err)
		}
		await(t, watcher, "a later step", func(s *coordinator.State) bool {
			return s.RunState == coordinator.Finished || until < 9 && s.Progress.Step >= until
		})
		r.Stop()
		if err := errors.Join(watcher.Close(), c.Close()); err != nil {
			t.Fatal(err)
		}
		<-done
	}
	draws, committed := 0, [32]byte{}
	_, _, err := server.Replay(server.JournalPath(dir, runID), func(r follow.Record, s *coordinator.State) error {
		switch {
		case r.Kind == follow.KindGenesis:
			committed = s.DrawCommitment
		case r.Draw != [32]byte{}:
			if sha256.Sum256(r.Draw[:]) != committed || s.DrawCommitment != r.Draw {
				t.Errorf("step %d began with %x", s.Progress.Step, r.Draw)
			}
			committed = r.Draw
			draws++
		case s.DrawCommitment != committed:
			t.Errorf("%s used a draw that the journal does not have", r)
		}
		return nil
	})
	if err != nil || draws != 9 {
		t.Errorf("%d draws (%v), want one for each of 9 rounds", draws, err)
	}
	if info, err := os.Stat(server.DrawsPath(dir, runID)); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("file of the secret: %v, %v", info.Mode(), err)
	}
	if err := os.Remove(server.DrawsPath(dir, runID)); err != nil {
		t.Fatal(err)
	}
	servertest.Start(t, o).Stop() // a finished run needs no draws
}

// TestDrawsOfAnotherRunAreRefused checks that a run does not continue without the secret with which
// it began.
func TestDrawsOfAnotherRunAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(path string) error{
		"missing":  os.Remove,
		"readable": func(path string) error { return os.Chmod(path, 0o640) },
		"another": func(path string) error {
			return os.WriteFile(path, []byte("psychedraws/1 65536 "+strings.Repeat("ab", 32)+"\n"), 0o600)
		},
		"cut": func(path string) error { return os.Truncate(path, 30) },
		"of no draw": func(path string) error {
			return os.WriteFile(path, []byte("psychedraws/1 0 "+strings.Repeat("ab", 32)+"\n"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			o := options(dir)
			servertest.Start(t, o).Stop()
			if err := spoil(server.DrawsPath(dir, runID)); err != nil {
				t.Fatal(err)
			}
			golden.Message(t, "error", server.Run(t.Context(), o))
		})
	}
}

// TestMoreRoundsThanDraws checks that a run cannot have more rounds than draws.
func TestMoreRoundsThanDraws(t *testing.T) {
	o := options("")
	o.Runs = []server.Genesis{quick(1<<24 + 1)}
	golden.Message(t, "a separate run", server.Run(t.Context(), o))
	o.Runs, o.Create.Keys = []server.Genesis{by(9, func(host coordinator.ClientID) (coordinator.State, error) {
		s, err := quick(8)(host)
		s.RunState = coordinator.Paused
		return s, err
	})}, []identity.ID{backendtest.Key(9).ID()}
	r := servertest.Start(t, o)
	long := by(9, func(host coordinator.ClientID) (coordinator.State, error) {
		s, err := quick(1<<20 + 1)(host)
		s.RunID, s.SeedChain = "long", sha256.Sum256([]byte("psyche/seed/v1long"))
		return s, err
	})
	err := create(r.Address, "long", 9, long)
	if !errors.Is(err, tcp.ErrRefused) {
		t.Errorf("a run that is begun over the network: %v", err)
	}
	golden.Message(t, "a run that is begun over the network", err)
	main := dial(t, r.Address, 9)
	u := await(t, main, "the run", func(*coordinator.State) bool { return true })
	update := coordinator.UpdateConfig{Config: u.State.Config, Model: u.State.Model}
	update.Config.TotalSteps = 1 << 16
	if err := main.Submit(t.Context(), update); err != nil {
		t.Errorf("as many rounds as draws: %v", err)
	}
	update.Config.TotalSteps++
	err = main.Submit(t.Context(), update)
	if !errors.Is(err, coordinator.ErrInvalidConfig) {
		t.Errorf("one more round than draws: %v", err)
	}
	golden.Message(t, "one more round than draws", err)
}
