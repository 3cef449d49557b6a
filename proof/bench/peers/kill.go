package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/psyche-go/psyche/proof/bench/process"
	"github.com/psyche-go/psyche/record/event"
)

const (
	killAfter    = 6 // exchanges
	restartDelay = time.Second
	timeout      = 5 * time.Minute // for the first exchanges, and for an effect of the kill
	killExchange = 40
)

// killed kills the last member of a run over loopback without warning, and restarts it after a
// second if the other members can continue. It measures how long the other members are blocked, and when the
// member is back.
func (b *bench) killed(ctx context.Context, s system) (m measurement, err error) {
	dir, err := os.MkdirTemp(b.out, "kill-")
	if err != nil {
		return m, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if s.State != "" {
		m.Killed, err = b.killOwn(ctx, cancel, s, dir)
	} else {
		m.Killed, err = b.killTorch(ctx, s, dir)
	}
	if err != nil {
		return m, fmt.Errorf("%w (logs are in %s)", err, dir)
	}
	return m, os.RemoveAll(dir)
}

func (b *bench) killOwn(ctx context.Context, cancel func(), s system, dir string) (k *killed, err error) {
	n, err := b.startOwn(ctx, s, dir, process.Loopback(members+1), killExchange)
	defer func() {
		cancel()
		n.wait()
	}()
	if err != nil {
		return nil, err
	}
	if !wait(ctx, func() bool { return len(n.trained(0, time.Time{})) >= killAfter }) {
		return nil, errors.New("the first member did not complete its first rounds")
	}
	n.members[members-1].Signal(syscall.SIGKILL)
	at, before := time.Now(), mean(n.applied(0, time.Time{}))
	if err := pause(ctx, restartDelay); err != nil {
		return nil, err
	}
	again, err := n.startMember(ctx, members-1)
	if err != nil {
		return nil, err
	}
	<-n.members[members-1].Ended()
	n.members[members-1] = again
	restarted := time.Now()
	back := func() []time.Time { return n.trained(members-1, restarted) }
	if !wait(ctx, func() bool { return len(back()) > 0 && len(n.applied(0, back()[0])) > 0 }) {
		return nil, fmt.Errorf("the killed member did not train again within %v of its restart", timeout)
	}
	return &killed{Before: before, Stall: longest(n.applied(0, at), at), Back: back()[0].Sub(restarted).Seconds()}, nil
}

// trained and applied return the times at which a member trained batches, or applied rounds, since
// a time.
func (n *ownNetwork) trained(i int, since time.Time) []time.Time {
	return times[event.Trained](n, i, since)
}
func (n *ownNetwork) applied(i int, since time.Time) []time.Time {
	return times[event.Applied](n, i, since)
}

// times returns the times of a member's events of one kind since a time. It ignores an incomplete
// last line.
func times[kind any](n *ownNetwork, i int, since time.Time) (all []time.Time) {
	for e, err := range event.Read(filepath.Join(n.dir, fmt.Sprintf("member-%d", i), "events.jsonl")) {
		if err != nil {
			return all
		}
		if _, ok := e.Body.(kind); ok && e.Time.After(since) {
			all = append(all, e.Time)
		}
	}
	return all
}

// longest returns the longest interval between consecutive times, starting with from, in seconds.
func longest(all []time.Time, from time.Time) (longest float64) {
	for _, t := range all {
		longest, from = max(longest, t.Sub(from).Seconds()), t
	}
	return longest
}

// mean returns the mean interval between consecutive times, in seconds.
func mean(all []time.Time) float64 {
	if len(all) < 2 {
		return 0
	}
	return all[len(all)-1].Sub(all[0]).Seconds() / float64(len(all)-1)
}

// wait waits until so returns true, with a timeout.
func wait(ctx context.Context, so func() bool) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for !so() {
		if pause(ctx, 50*time.Millisecond) != nil {
			return false
		}
	}
	return true
}

func pause(ctx context.Context, length time.Duration) error {
	timer := time.NewTimer(length)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

func closed(ended <-chan struct{}) bool {
	select {
	case <-ended:
		return true
	default:
		return false
	}
}
