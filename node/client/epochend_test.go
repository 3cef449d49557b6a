package client

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/backend"
)

// mortal is a backend whose client is killed when the run accepts its report of the model after a
// step. The client receives no later state of the run, and does nothing after the report.
type mortal struct {
	env.Backend
	step    uint32
	kill    func()
	dead    atomic.Bool
	updates chan backend.Update
}

// diesReporting kills a client with its report of the model after a step.
func diesReporting(step uint32, o *options, kill func()) {
	m := &mortal{Backend: o.Backend, step: step, kill: kill, updates: make(chan backend.Update)}
	o.Backend = m
	go func() {
		defer close(m.updates)
		for u := range m.Backend.Updates() {
			if !m.dead.Load() {
				m.updates <- u
			}
		}
	}()
}

func (m *mortal) Updates() <-chan backend.Update { return m.updates }

func (m *mortal) Submit(ctx context.Context, a coordinator.Action) error {
	report, ok := a.(coordinator.ReportCheckpoint)
	if !ok || report.Step != m.step+1 {
		return m.Backend.Submit(ctx, a)
	}
	m.dead.Store(true)
	err := m.Backend.Submit(ctx, a)
	m.kill()
	return err
}

// TestAllDieWithTheirReports kills every member when the run accepts its report of an epoch's last
// model. The run then records a model that is in no member's memory. It continues from the copies
// on the disks, in the first epoch and in the second. If the disks were too slow for that model, it
// continues from the epoch's newest intermediate checkpoint.
func TestAllDieWithTheirReports(t *testing.T) {
	for _, epoch := range []uint32{1, 2} {
		for often, p := range promises {
			for name, written := range map[string]bool{"": true, ", slow disks": false} {
				if p.audits {
					continue
				}
				t.Run(fmt.Sprintf("epoch %d, %s%s", epoch, often, name), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { dieWithTheirReports(t, epoch, p, written) })
				})
			}
		}
	}
}

func dieWithTheirReports(t *testing.T, epoch uint32, p promise, written bool) {
	config := epochs(4)
	config.TotalSteps = 36
	w := p.world(t, config)
	step := epoch * config.RoundsPerEpoch
	saving := func(i int, more func(o *options)) func(o *options) {
		return func(o *options) {
			o.CheckpointDir, o.KeepCheckpoints = filepath.Join(w.dir, fmt.Sprint("disk", i)), 1
			more(o)
		}
	}
	members := make([]*member, 4)
	for i := range members {
		members[i] = w.launch(i, saving(i, func(o *options) {
			diesReporting(step, o, func() {
				members[i].net.Close()
				_ = members[i].backend.Close()
			})
		}))
	}
	for _, m := range members {
		m.wait()
	}
	w.until("the epoch is over", func(s *coordinator.State) bool { return s.RunState == coordinator.WaitingForMembers })
	s := w.host.State()
	if s.Model.Checkpoint.Step != step {
		t.Fatalf("the run recorded the model of step %d", s.Model.Checkpoint.Step)
	}
	most := uint32(0)
	if !written {
		most = p.every
		ahead, err := filepath.Glob(filepath.Join(w.dir, "disk*", "*.pending"))
		if err != nil || len(ahead) != len(members) {
			t.Fatalf("the disks have %v, %v", ahead, err)
		}
		for _, dir := range ahead {
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}
	}
	back := time.Now()
	for i := range members {
		members[i] = w.launch(i, saving(i, func(o *options) { o.AcceptLoss = !written }))
	}
	w.until("the next epoch", func(s *coordinator.State) bool { return s.RunState == coordinator.RoundTrain })
	s = w.host.State()
	t.Logf("the run recorded the model of step %d, but continues from the model of step %d, %v after its members came back", step, s.Model.Checkpoint.Step, time.Since(back))
	if from := s.Model.Checkpoint.Step; from > step || from+most < step {
		t.Errorf("the run continues from the model of step %d, it recorded step %d", from, step)
	}
	finishEqual(w, members...)
	checkNobodyAccused(t, w, members)
}
