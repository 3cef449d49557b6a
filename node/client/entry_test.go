package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/event"
)

// journal is a log that a test can read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

// lines returns the lines that contain all words.
func (j *journal) lines(words ...string) (found []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
next:
	for line := range strings.Lines(j.text.String()) {
		for _, word := range words {
			if !strings.Contains(line, word) {
				continue next
			}
		}
		found = append(found, line)
	}
	return found
}

// waits returns the log's texts about waiting, one per line.
func (j *journal) waits() error {
	var texts []string
	for _, line := range j.lines("level=INFO", "waiting") {
		_, text, _ := strings.Cut(strings.TrimSpace(line), "level=INFO ")
		texts = append(texts, text)
	}
	return errors.New(strings.Join(texts, "\n"))
}

// keeps makes a client log into the journal.
func (j *journal) keeps(o *options) { o.Logger = slog.New(slog.NewTextHandler(j, nil)) }

// TestRunIsCheckedBeforeJoining checks that a client that cannot take part ends before it requests
// a seat.
func TestRunIsCheckedBeforeJoining(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(2))
		wrong := errors.New("no such folder")
		bad := w.launch(0, func(o *options) {
			o.CheckRun = func(context.Context, env.Definition) error { return wrong }
		})
		bad.wait()
		if joined := all[event.Joined](bad); !errors.Is(bad.err, wrong) || len(joined) != 0 {
			t.Errorf("ended with %v after %v", bad.err, joined)
		}
		var checks atomic.Int32
		good := func(o *options) {
			o.CheckRun = func(context.Context, env.Definition) error {
				checks.Add(1)
				return nil
			}
		}
		finishEqual(w, w.launch(1, good), w.launch(2, good))
		if n := checks.Load(); n != 2 {
			t.Errorf("%d checks by two clients", n)
		}
	})
}

// TestWaitingIsSaid checks that a client reports that it waits for another client, or for the next
// epoch.
func TestWaitingIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(2))
		var first, late journal
		a := w.launch(0, first.keeps)
		time.Sleep(time.Minute)
		if said := first.lines("level=INFO", "have=1", "want=2"); len(said) != 1 {
			t.Errorf("in a minute it reported %q", said)
		}
		if said := first.lines("level=INFO"); len(said) != 2 || !strings.Contains(said[0], "epoch=0") {
			t.Errorf("logged %q, want first that it joined", said)
		}
		b := w.launch(1, nil)
		w.until("first round", func(s *coordinator.State) bool { return s.RunState == coordinator.RoundTrain })
		c := w.launch(2, late.keeps)
		finishEqual(w, a, b, c)
		golden.Message(t, "the next epoch", late.waits())
	})
}

// TestLastMemberReportsLostSteps interrupts the last member of a run. It must report the steps that
// are lost.
func TestLastMemberReportsLostSteps(t *testing.T) {
	tests := map[string]struct {
		saves  bool
		others int
		lost   bool
	}{
		"with a folder":    {true, 0, false}, // it reported the model of step 5, which is in the folder
		"without a folder": {false, 0, true},
		"others stay":      {true, 1, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, clienttest.Config(uint16(1+test.others)))
				var log journal
				m := w.launch(0, func(o *options) {
					log.keeps(o)
					if test.saves {
						o.CheckpointDir = filepath.Join(w.dir, "saved")
					}
				})
				for i := range test.others {
					w.launch(1+i, nil)
				}
				w.until("the fifth step is applied", func(*coordinator.State) bool { return len(all[event.Applied](m)) == 5 })
				m.cancel()
				m.wait()
				said := log.lines("level=WARN", "steps ")
				if (len(said) == 1) != test.lost || len(said) == 1 && !strings.Contains(said[0], "steps 1 to 5 ") {
					t.Errorf("reported %q", said)
				}
			})
		})
	}
}

// TestOtherInitialModels begins a run with two different initial models, of the same shape or of
// different shapes. In the second case no member can hold the result of the other model. Clients
// report that they, or the others, have the wrong model.
func TestOtherInitialModels(t *testing.T) {
	for name, refused := range map[string]bool{"one shape": false, "two shapes": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, clienttest.Config(3))
				var logs [3]journal
				for i := range logs {
					w.launch(i, func(o *options) {
						logs[i].keeps(o)
						if i == 2 {
							o.trainer.Invalid = func(uint32) bool { return refused }
							o.Initial = otherModel
						}
					})
				}
				w.until("second epoch", func(s *coordinator.State) bool { return s.Progress.Epoch == 1 })
				for i, others := range []int{1, 1, 2} {
					said := logs[i].lines("level=WARN", "--model-path", "results=3", fmt.Sprintf("other_model=%d", others))
					if len(said) != 1 {
						t.Errorf("client %d reported %q; it logged %q", i, said, logs[i].lines("level=WARN"))
					}
				}
			})
		})
	}
}

func otherModel(context.Context, coordinator.Checkpoint) (checkpoint.Snapshot, error) {
	return clienttest.Snapshot([clienttest.Width]uint64{9}), nil
}

// TestFinishedRunWithoutItsModel checks a client that comes to a finished run.
func TestFinishedRunWithoutItsModel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(1))
		saved := func(o *options) { o.CheckpointDir = filepath.Join(w.dir, "saved") }
		finishEqual(w, w.launch(0, saved))
		digest := hexOf(w.host.State().Model.Checkpoint.Digest)[:16]
		var there, here journal
		late := []*member{w.launch(1, there.keeps), w.launch(0, func(o *options) { here.keeps(o); saved(o) })}
		for _, m := range late {
			m.wait()
			if m.err != nil {
				t.Error(m.err)
			}
		}
		if said := there.lines("level=WARN", digest, "--checkpoint-dir"); len(said) != 1 {
			t.Errorf("reported %q", said)
		}
		if said := here.lines("level=INFO", "step=9", "digest="+digest); len(said) != 1 { // from its disk
			t.Errorf("reported %q", here.lines("digest="+digest))
		}
	})
}

// TestNameIsTold checks that members receive the name of a joining client with its addresses.
func TestNameIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(2))
		m := w.launch(0, func(o *options) { o.Name = "Ada" })
		watcher, err := w.host.Attach(clienttest.Key(9))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = watcher.Close() }()
		for u := range watcher.Updates() {
			if slices.ContainsFunc(u.Peers, func(p backend.Peer) bool { return p.ID == m.id && p.Name == "Ada" }) {
				return
			}
		}
		t.Error("no member receives the name")
	})
}
