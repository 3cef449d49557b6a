package client

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/memory"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/keep"
)

// goBack replaces the host by one with an earlier state of the run, like a server that restarts
// with an old disk.
func (w *world) goBack(to coordinator.State) {
	w.t.Helper()
	host, err := memory.NewHost(memory.Options{
		Genesis: func(id coordinator.ClientID) (coordinator.State, error) { return to, nil },
		Now:     func() uint64 { return uint64(time.Now().UnixMilli()) },
		Seed:    2,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.host = host
	w.tasks.Go(func() { host.Run(w.ctx, 100*time.Millisecond) })
}

// TestReturnAfterTheHostLostRecords replaces the server by one with an older disk in the middle of
// the second epoch. Returning members report the loss. They do not mistake copies of forgotten
// steps for the run's models, and do not keep such copies. The run reaches its end.
func TestReturnAfterTheHostLostRecords(t *testing.T) {
	t.Run("in memory", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testHostThatWentBack(t, nil) }) })
	t.Run("from files", func(t *testing.T) { synctest.Test(t, func(t *testing.T) { testHostThatWentBack(t, filed) }) })
}

func testHostThatWentBack(t *testing.T, also func(o *options)) {
	config := epochs(3)
	config.TotalSteps = 36
	w := newWorld(t, config, []byte(everyThird)...)
	logs := make([]journal, 3)
	folder := func(i int) keep.Folder {
		return keep.Folder{Dir: filepath.Join(w.dir, fmt.Sprint("disk", i)), RunID: clienttest.RunID}
	}
	change := func(i int) func(o *options) {
		return func(o *options) {
			o.CheckpointDir = folder(i).Dir
			logs[i].keeps(o)
			if also != nil {
				also(o)
			}
		}
	}
	var members []*member
	for i := range 3 {
		members = append(members, w.launch(i, change(i)))
	}
	w.reach(5, coordinator.RoundTrain)
	old := w.host.State()
	w.reach(20, coordinator.RoundTrain)
	var lost coordinator.Recorded
	w.until("all have the intermediate checkpoint on their disks", func(s *coordinator.State) bool {
		lost = s.Epoch.Commit
		for i := range members {
			if _, err := folder(i).FindIntermediate(lost.Step, lost.Digest); err != nil {
				return false
			}
		}
		return true
	})
	for _, m := range members {
		m.crash()
	}
	w.goBack(old)
	for i := range members {
		members[i] = w.launch(i, change(i))
	}
	w.reach(21, coordinator.RoundTrain)
	for i := range logs {
		if said := logs[i].lines("level=WARN", "step 5", "--resume-from"); len(said) != 1 {
			t.Errorf("client %d reports %q as the loss: %q", i, said, logs[i].lines("level=WARN"))
		}
		if len(logs[i].lines("level=WARN", "signed=")) != 1 {
			t.Errorf("client %d does not report that it signs nothing yet", i)
		}
	}
	if s := w.host.State(); s.Epoch.Commit == lost || s.Model.Checkpoint.Digest == lost.Digest || slices.Contains(s.Earlier, lost) {
		t.Errorf("the run took a model of step %d that its host forgot", lost.Step)
	}
	finishEqual(w, members...)
	checkNobodyAccused(t, w, members)
	for i := range 3 {
		copies, err := filepath.Glob(filepath.Join(folder(i).Dir, "*-commit*"))
		if len(copies) > 0 || err != nil {
			t.Errorf("left are %v, %v", copies, err)
		}
	}
}
