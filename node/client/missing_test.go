package client

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/keep"
	"github.com/psyche-go/psyche/record/event"
)

// TestRestartWithAnOlderModel restarts the only member of a run after its folder has lost the
// newest recorded model. It waits for a client with that model. It continues from the older model
// if none comes, or at once if the user accepts the loss.
func TestRestartWithAnOlderModel(t *testing.T) {
	for name, test := range map[string]struct {
		accept bool
		holder time.Duration // until a client with the newest model comes; 0: none comes
		most   time.Duration // until the next epoch begins
		least  time.Duration
		copied bool // the older model is an intermediate checkpoint
	}{
		"nobody comes":               {false, 0, core.HolderTimeout + time.Minute, core.HolderTimeout, false},
		"a holder comes":             {false, 2 * time.Minute, 3 * time.Minute, 2 * time.Minute, false},
		"a holder comes, and a copy": {false, 2 * time.Minute, 3 * time.Minute, 2 * time.Minute, true},
		"a loss is accepted":         {true, 0, time.Minute, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := clienttest.Config(1)
				config.TotalSteps = 300
				w := newWorld(t, config)
				folder := filepath.Join(w.dir, "saved")
				kept := func(o *options) { o.CheckpointDir = folder }
				a := w.launch(0, kept)
				w.until("the third epoch", func(s *coordinator.State) bool { return s.Progress.Epoch == 2 && s.RunState == coordinator.RoundTrain })
				a.cancel()
				a.wait()
				w.until("nobody is left", func(s *coordinator.State) bool { return s.RunState == coordinator.WaitingForMembers })
				newest := w.host.State().Model.Checkpoint.Step
				f := keep.Folder{Dir: folder, RunID: clienttest.RunID}
				older, found := f.NewestBefore(newest)
				away := filepath.Join(w.dir, "holder")
				lost := keep.Folder{Dir: away, RunID: clienttest.RunID}
				if err := os.Mkdir(away, 0o755); err != nil || !found {
					t.Fatal(err, newest)
				}
				if err := os.Rename(f.Checkpoint(newest), lost.Checkpoint(newest)); err != nil {
					t.Fatal(err)
				}
				if test.copied {
					if err := os.Rename(f.Checkpoint(older), f.Intermediate(older)); err != nil {
						t.Fatal(err)
					}
				}
				var log journal
				begun, want := time.Now(), older
				again := w.launch(0, func(o *options) {
					kept(o)
					log.keeps(o)
					o.AcceptLoss = test.accept
				})
				members := []*member{again}
				if test.holder > 0 {
					time.Sleep(test.holder)
					want = newest
					members = append(members, w.launch(1, func(o *options) { o.CheckpointDir = away }))
				}
				w.until("it has the model", func(*coordinator.State) bool { return len(all[event.Ready](again)) > 0 })
				synctest.Wait() // until the report appears too
				if took := time.Since(begun); took < test.least || took > test.most {
					t.Errorf("the epoch began after %v, want %v to %v", took, test.least, test.most)
				}
				if ready := all[event.Ready](again)[0]; ready.Step != want {
					t.Errorf("the epoch began with %+v, want the model of step %d", ready, want)
				}
				if said := log.lines("level=WARN", "--accept-loss"); (len(said) > 0) == test.accept {
					t.Errorf("reported %q", said)
				}
				if said := log.lines("level=WARN", fmt.Sprintf("first_step=%d", older+1)); len(said) == 0 && test.holder == 0 {
					t.Errorf("the client logged %q about the loss of step %d: %q", said, newest, log.lines("level=WARN"))
				}
				for _, m := range members {
					m.cancel()
					m.wait()
				}
			})
		})
	}
}

// TestNewcomersWaitForAMember checks that newcomers alone do not continue the run without the model
// of a member, which comes back much later, with the same key or a different one.
func TestNewcomersWaitForAMember(t *testing.T) {
	for name, index := range map[string]int{"same key": 0, "another key": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := clienttest.Config(1)
				config.TotalSteps = 300
				w := newWorld(t, config)
				kept := func(o *options) { o.CheckpointDir = filepath.Join(w.dir, "saved") }
				a := w.launch(0, kept)
				w.until("the third epoch", func(s *coordinator.State) bool { return s.Progress.Epoch == 2 && s.RunState == coordinator.RoundTrain })
				a.cancel()
				a.wait()
				w.until("nobody is left", func(s *coordinator.State) bool { return s.RunState == coordinator.WaitingForMembers })
				newest := w.host.State().Model.Checkpoint.Step
				var log journal
				b := w.launch(1, log.keeps)
				time.Sleep(20 * time.Minute)
				if ready := all[event.Ready](b); len(ready) > 0 {
					t.Fatalf("without a holder the client became ready: %+v", ready)
				}
				if said := log.lines("level=INFO", fmt.Sprintf("step %d", newest)); len(said) == 0 {
					t.Error("the client did not report why it waits")
				}
				again := w.launch(index, kept)
				w.until("it has a model", func(*coordinator.State) bool { return len(all[event.Ready](again)) > 0 })
				synctest.Wait()
				if ready := all[event.Ready](again)[0]; ready.Step != newest {
					t.Errorf("the run continues from %+v, want the model of step %d", ready, newest)
				}
				for _, m := range []*member{again, b} {
					m.cancel()
					m.wait()
				}
			})
		})
	}
}

// TestKilledAfterItsReport kills the only member between two epochs, before its disk has the model
// that it reported. It is restarted while the run still counts on that model. It withdraws the
// report at once, and no Warmup waits for a model that no member has.
func TestKilledAfterItsReport(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(1)
		config.TotalSteps = 300
		w := newWorld(t, config)
		f := keep.Folder{Dir: filepath.Join(w.dir, "saved"), RunID: clienttest.RunID}
		kept := func(o *options) { o.CheckpointDir = f.Dir }
		a := w.launch(0, kept)
		var newest uint32
		w.until("the third epoch is over", func(s *coordinator.State) bool {
			newest = s.Model.Checkpoint.Step
			return s.Progress.Epoch == 3 && s.RunState == coordinator.WaitingForMembers && len(s.Pending) == 1 && s.Pending[0].HoldsModel
		})
		a.net.Close()
		a.backend.Cut() // the host waits for a client that lost its connection
		<-a.done
		if err := os.RemoveAll(f.Checkpoint(newest)); err != nil {
			t.Fatal(err)
		}
		older, found := f.NewestBefore(newest)
		if !found {
			t.Fatal("the client has no older model")
		}
		begun, again := time.Now(), w.launch(0, kept)
		w.until("it has a model", func(*coordinator.State) bool { return len(all[event.Ready](again)) > 0 })
		if s := w.host.State(); s.Progress.Epoch != 3 || s.Progress.Step != newest+1 {
			t.Errorf("an epoch began and ended without a model: %s", s.String())
		}
		if ready := all[event.Ready](again)[0]; ready.Step != older || time.Since(begun) < core.HolderTimeout {
			t.Errorf("the epoch began with %+v after %v, want the model of step %d after %v without a holder", ready, time.Since(begun), older, core.HolderTimeout)
		}
		again.cancel()
		again.wait()
	})
}
