package client

import (
	"time"
)

// How long a client that ends waits for a disk: a healthy one needs no more, and no longer for a large model than a
// disk takes that writes slowHash bytes in a second.
const (
	diskFarewell    = 3 * time.Second
	longestFarewell = time.Minute

	slowFarewell = 10 * time.Second // then it is said that a client whose run is over waits for the disk
)

// DiskHangs reports whether Run gave up what was on its way to the disk: goroutines of this client wait for it still,
// and whatever else needs that disk may wait as well.
func (n *Node) DiskHangs() bool { return n.diskHangs }

// waitForTasks waits for all that was started and is to end now. It gives up what waits for a disk that does not answer, and
// says what is not on it.
func (n *Node) waitForTasks(own *goroutines) {
	if n.diskHangs {
		return
	}
	steps, bytes := n.unwritten()
	limit := min(diskFarewell+time.Duration(bytes/slowHash)*time.Second, longestFarewell)
	if n.diskHangs = !own.ended(limit, func() {
		n.report.log.Info("waiting for the disk; a second Ctrl-C ends this client at once", "dir", n.CheckpointDir, "models of steps", steps, "at most", limit)
	}); !n.diskHangs {
		return
	}
	n.report.log.Error("the disk does not answer: this client ends without waiting for it", "dir", n.CheckpointDir,
		"not saved", steps, "newest that this client saved", n.saver.Wrote())
}

// unwritten returns the steps of the models that are on their way to the disk, and how many bytes they have.
func (n *Node) unwritten() (steps []uint32, bytes int) {
	steps, bytes = n.saver.Unwritten()
	disk := &n.rounds.points.disk
	writes := disk.hung
	if disk.write != nil {
		writes = append(writes[:len(writes):len(writes)], disk.write)
	}
	for _, w := range writes {
		steps, bytes = append(steps, w.point.Step), bytes+n.rounds.points.size
	}
	return steps, bytes
}

// sayLoss saves what can be saved still, and says what is lost when this client has left the run as the last one.
func (n *Node) sayLoss(own *goroutines) {
	if n.diskHangs {
		return
	}
	saved := make(chan uint32, 1)
	own.Run(func() func() {
		_ = n.tasks.AtDisk(func() error {
			n.saver.SaveNow()
			saved <- max(n.saver.OnDisk(n.run.state), n.rounds.points.onDisk(n.run.state))
			return nil
		})
		return func() {}
	})
	if n.waitForTasks(own); n.diskHangs {
		return
	}
	if loss := n.run.loss(newestStep(n.rounds.replica, n.models.Held), <-saved); loss != "" {
		n.report.log.Warn(loss)
	}
}
