package client

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/record/event"
)

// withoutIntermediate is a network on which no peer serves the intermediate checkpoint of the
// running epoch.
type withoutIntermediate struct {
	env.Network
	w *world
}

func (n withoutIntermediate) Request(ctx context.Context, peer identity.ID, protocol string, request []byte, limit int) ([]byte, error) {
	if s := n.w.host.State(); protocol == exchange.ModelProtocol && s.Epoch.Commit.Digest == [32]byte(request) {
		return nil, exchange.ErrNotHeld
	}
	return n.Network.Request(ctx, peer, protocol, request, limit)
}

// TestSurvivorWithoutTheIntermediateCheckpoint kills all holders of the newest intermediate
// checkpoint. The run falls back to it, but the only remaining member was restarted since and does
// not have it. The run continues from the first model of the epoch, which this member has in memory
// or on its disk, and not from the run's origin.
func TestSurvivorWithoutTheIntermediateCheckpoint(t *testing.T) {
	for name, test := range map[string]struct {
		keeps int  // number of checkpoints on its disk; 0 if it has no disk
		seat  bool // it was restarted before the host withdrew it
	}{
		"in memory":                    {0, false},
		"on a disk for one checkpoint": {1, false},
		"in memory, with its old seat": {0, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const rounds, commit = 40, 60
				config := clienttest.Config(4)
				config.RoundsPerEpoch, config.TotalSteps, config.InitMinClients = rounds, 3*rounds, 1
				w := newWorldOf(t, config, 100*time.Millisecond, []byte(`{"CommitEveryRounds":20}`)...)
				change := func(i int) func(o *options) {
					return func(o *options) {
						if test.keeps > 0 && i == 0 {
							o.CheckpointDir, o.KeepCheckpoints = filepath.Join(w.dir, fmt.Sprint("disk ", i)), test.keeps
						}
					}
				}
				var members []*member
				for i := range 4 {
					members = append(members, w.launch(i, change(i)))
				}
				w.until("an intermediate checkpoint of the second epoch", func(s *coordinator.State) bool { return s.Epoch.Commit.Step == commit })
				if test.seat {
					w.reach(commit+3, coordinator.RoundTrain) // rounds after the intermediate checkpoint are applied individually
					members[0].net.Close()
					members[0].backend.Cut()
					members[0].wait()
				}
				members[0].crash()
				if folder := (keep.Folder{Dir: filepath.Join(w.dir, "disk 0"), RunID: clienttest.RunID}); test.keeps > 0 {
					if err := os.RemoveAll(folder.Intermediate(commit)); err != nil {
						t.Fatal(err)
					}
				}
				left := w.launch(0, func(o *options) {
					change(0)(o)
					o.Network = withoutIntermediate{o.Network, w}
				})
				w.until("it is back", func(*coordinator.State) bool { return len(all[event.Rejoined](left)) > 0 })
				for _, m := range members[1:] { // all at the same moment
					m.net.Close()
					_ = m.backend.Close()
				}
				w.until("the epoch is over", func(s *coordinator.State) bool { return s.RunState == coordinator.WaitingForMembers })
				s := w.host.State()
				if s.Model.Checkpoint.Step != commit {
					t.Fatalf("the run fell back to step %d, want its intermediate checkpoint of step %d", s.Model.Checkpoint.Step, commit)
				}
				w.until("the next epoch", func(s *coordinator.State) bool { return s.RunState != coordinator.WaitingForMembers })
				if s = w.host.State(); s.Model.Checkpoint.Step != rounds {
					t.Errorf("the run continues from step %d, %v; want %d", s.Model.Checkpoint.Step, s.Model.Checkpoint.Kind, rounds)
				}
				w.until("rounds", func(s *coordinator.State) bool { return s.RunState != coordinator.Warmup })
				if s = w.host.State(); len(s.Epoch.Ready) != 1 {
					t.Errorf("%d members have the model", len(s.Epoch.Ready))
				}
				for _, m := range append(members, left) {
					m.cancel()
					m.wait()
				}
			})
		})
	}
}
