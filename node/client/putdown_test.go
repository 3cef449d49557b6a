package client

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/event"
)

// filed makes a client treat every model as large.
func filed(o *options) {
	prepare := o.prepare
	o.prepare = func(n *Node) {
		if prepare != nil {
			prepare(n)
		}
		n.models.Large, n.models.copies.Large = 0, 0
	}
}

// TestLargeModels checks that large models are served from the disk: to a member that joins while
// their folder is removed, and by a member that was killed and restarted from its disk. If a file
// of one member is cut, other members still serve the model.
func TestLargeModels(t *testing.T) {
	for _, what := range []string{"whole", "pruned", "cut"} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := epochs(4)
				config.InitMinClients = 3
				config.TotalSteps = 48
				w := newWorld(t, config, []byte(everyThird)...)
				change := func(i int) func(o *options) {
					return func(o *options) {
						filed(o)
						o.CheckpointDir, o.KeepCheckpoints = filepath.Join(w.dir, fmt.Sprint("disk", i)), 1
					}
				}
				a, b, c := w.launch(0, change(0)), w.launch(1, change(1)), w.launch(2, change(2))
				w.until("models of the first epoch lie on all disks", func(s *coordinator.State) bool {
					return s.Progress.Epoch == 1 && a.net.InFiles() > 0 && b.net.InFiles() > 0 && c.net.InFiles() > 0
				})
				w.reach(14, coordinator.RoundTrain)
				c.crash()
				w.reach(15, coordinator.RoundTrain)
				c = w.launch(2, change(2))
				switch what {
				case "pruned":
					removeModels(t, filepath.Join(w.dir, "disk0"), os.RemoveAll)
				case "cut":
					removeModels(t, filepath.Join(w.dir, "disk0"), func(dir string) error {
						return os.Truncate(filepath.Join(dir, "model.safetensors"), 100)
					})
				}
				w.until("the third epoch", func(s *coordinator.State) bool { return s.Progress.Epoch >= 1 && s.Progress.Step > 20 })
				late := w.launch(3, change(3))
				finishEqual(w, a, b, c, late)
				checkNobodyAccused(t, w, []*member{a, b, c, late})
				if ready := all[event.Ready](late); len(ready) == 0 || ready[0].Source != "peers" {
					t.Errorf("the late client has the model from %+v", ready)
				}
				time.Sleep(time.Second)
			})
		})
	}
}

// removeModels calls a function for each folder with a model of an epoch.
func removeModels(t *testing.T, dir string, do func(dir string) error) {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join(dir, "*-step*"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("%d folders, %v", len(folders), err)
	}
	for _, folder := range folders {
		if err := do(folder); err != nil {
			t.Fatal(err)
		}
	}
}
