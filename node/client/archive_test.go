package client

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/record/event"
)

// silentHolders is a network on which no part of a model arrives.
type silentHolders struct{ env.Network }

func (f silentHolders) Request(ctx context.Context, peer identity.ID, protocol string, request []byte, limit int) ([]byte, error) {
	if protocol == exchange.ModelProtocol {
		return nil, errors.New("no answer")
	}
	return f.Network.Request(ctx, peer, protocol, request, limit)
}

// TestModelWithoutPeers checks a returning client that no member gives the model. It reads the
// model from its own disk, or from the archive, where it first finds a wrong model.
func TestModelWithoutPeers(t *testing.T) {
	for _, source := range []string{"disk", "archive"} {
		t.Run(source, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := clienttest.Config(3)
				config.TotalSteps = 12
				w := newWorld(t, config)
				saved := &savedFolders{}
				a := w.launch(0, func(o *options) { o.CheckpointDir, o.Saved = t.TempDir(), saved.add })
				b := w.launch(1, nil)
				own := &savedFolders{}
				dir := t.TempDir()
				keep := func(o *options) { o.CheckpointDir, o.Saved = dir, own.add }
				c := w.launch(2, keep)
				w.until("second epoch", func(s *coordinator.State) bool { return s.Progress.Epoch == 1 && own.count() > 0 })
				c.crash()
				asked := 0
				again := w.launch(2, func(o *options) {
					o.Network = silentHolders{o.Network}
					if source == "disk" {
						keep(o)
						return
					}
					o.Archive = func(context.Context, coordinator.Checkpoint, coordinator.Location) (checkpoint.Snapshot, error) {
						if asked++; asked == 1 {
							return clienttest.Model(), nil
						}
						return checkpoint.ReadDir(saved.newest(t))
					}
				})
				w.until("it has the model", func(*coordinator.State) bool { return len(all[event.Ready](again)) > 0 })
				if ready := all[event.Ready](again); ready[0].Source != source || ready[0].Bytes != 0 {
					t.Errorf("ready: %+v", ready[0])
				}
				if source == "archive" && asked < 2 {
					t.Error("a model with a different digest was accepted")
				}
				for _, member := range []*member{a, b, again} {
					member.cancel()
					member.wait()
				}
			})
		})
	}
}

// savedFolders records the calls of Options.Saved.
type savedFolders struct {
	mu   sync.Mutex
	dirs []string
}

func (s *savedFolders) add(dir string, _ checkpoint.Facts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dirs = append(s.dirs, dir)
}

func (s *savedFolders) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.dirs)
}

func (s *savedFolders) newest(t *testing.T) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.dirs) == 0 {
		t.Fatal("nothing was saved")
	}
	return s.dirs[len(s.dirs)-1]
}

// TestFactsOfSavedCheckpoints checks that each folder contains the facts that a new run needs to
// continue.
func TestFactsOfSavedCheckpoints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(2))
		var mu sync.Mutex
		reported := map[uint32]checkpoint.Facts{}
		dir := t.TempDir()
		a := w.launch(0, func(o *options) {
			o.CheckpointDir = dir
			o.Saved = func(folder string, f checkpoint.Facts) {
				mu.Lock()
				defer mu.Unlock()
				reported[f.Step] = f
				if written, err := checkpoint.ReadFacts(folder); err != nil || written != f {
					t.Errorf("%s: got %+v, %v; want nil error and %+v", folder, written, err, f)
				}
			}
		})
		b := w.launch(1, nil)
		finishEqual(w, a, b)
		state := w.host.State()
		last, found := reported[state.Progress.Step-1]
		if !found || last.DataIndex != state.Progress.DataIndex || last.Digest != hexOf(state.Model.Checkpoint.Digest) || last.Epoch != state.Progress.Epoch {
			t.Errorf("facts %+v, progress %+v", reported, state.Progress)
		}
		for _, s := range all[event.Checkpoint](a) {
			if f := reported[s.Step]; f.Digest != s.Digest || f.DataIndex == 0 {
				t.Errorf("step %d: %+v", s.Step, f)
			}
		}
	})
}
