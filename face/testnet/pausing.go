package testnet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/core/coordinator"
)

const (
	longestPausing = 2 * time.Minute        // for the epoch of an interrupted run to close
	savingTimeout  = 10 * time.Second       // for its checkpoint to be saved afterwards
	pausingLooks   = 100 * time.Millisecond // interval of progress checks
)

// pauseRun closes the epoch of an interrupted run, so that a checkpoint contains all counted
// results before any process ends. It gives up after the maximum durations of the run's phases, and
// at once if the user interrupts again.
func (n *network) pauseRun(ctx context.Context) {
	if n.progress.finished() {
		return
	}
	config := n.run.Config
	limit := min(longestPausing, savingTimeout+time.Duration(config.MaxRoundTrainTime+config.RoundWitnessTime+config.CooldownTime)*time.Millisecond)
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), limit, fmt.Errorf("the run did not pause within %s", limit))
	defer cancel()
	ctx, hurry := context.WithCancelCause(ctx)
	defer hurry(nil)
	if n.options.Hurry != nil {
		stop := context.AfterFunc(n.options.Hurry, func() { hurry(errors.New("interrupted again")) })
		defer stop()
	}
	n.tell("closing the epoch to save all counted results in a checkpoint; press Ctrl-C again to end the run at once")
	err := n.setPaused(ctx, "pause")
	if err == nil || n.endsMeanwhile(ctx) {
		err = n.awaitPause(ctx)
	}
	if err != nil {
		n.tell("the epoch was not closed: %v; rounds since the newest checkpoint may be lost", err)
		return
	}
	if state, saved, dir := n.progress.paused(); saved > 0 {
		how := fmt.Sprintf("paused before round %d", state.Step)
		if n.progress.finished() {
			how = "over"
		}
		n.tell("the run is %s; the model of step %d is on the disks of %d clients: %s", how, state.Step-1, saved, dir)
	}
}

// endsMeanwhile reports whether a run that cannot be paused is over. It waits for a moment, because the
// clients' events report the end with a delay.
func (n *network) endsMeanwhile(ctx context.Context) bool {
	for range 20 {
		if n.progress.finished() || pause.For(ctx, pausingLooks) != nil {
			break
		}
	}
	return n.progress.finished()
}

// setPaused pauses or resumes the run.
func (n *network) setPaused(ctx context.Context, how string) error {
	args := []string{"run", "set-paused", how, "--run-id", n.run.RunID, "--keypair", n.authorityPath()}
	if n.options.Chain.Used {
		args = append(args, "--commitment", "confirmed")
	}
	return n.psyche(ctx, append(args, n.hostFlags...)...)
}

// awaitPause waits until the run is paused, and until the member clients have saved its model or
// savingTimeout is over.
func (n *network) awaitPause(ctx context.Context) error {
	var since time.Time
	for {
		state, saved, _ := n.progress.paused()
		switch {
		case state.RunState != coordinator.Paused.String() && state.RunState != coordinator.Finished.String():
		case since.IsZero():
			since = time.Now()
		case saved >= n.progress.living() || state.Step < 2 || time.Since(since) > savingTimeout:
			return nil
		}
		if n.allEnded() {
			return errors.New("no process of the run is left")
		}
		if err := pause.For(ctx, pausingLooks); err != nil {
			return err
		}
	}
}

// allEnded reports whether no client is left that could close the epoch.
func (n *network) allEnded() bool {
	ended := func(p *child.Process) bool {
		select {
		case <-p.Ended():
			return true
		default:
			return false
		}
	}
	if ended(n.server) {
		return true
	}
	for _, client := range n.clients {
		if !ended(client) {
			return false
		}
	}
	return true
}
