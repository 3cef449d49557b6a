package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/proof/testbed"
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
	n, err := b.newOwn(s, dir, testbed.Loopback(members+1), killExchange)
	if err != nil {
		return nil, err
	}
	defer n.AwaitAll()
	defer cancel()
	if err := n.StartAll(ctx); err != nil {
		return nil, err
	}
	first, last := n.Members[0], n.Members[members-1]
	if !wait(ctx, func() bool { return len(times[event.Trained](first, time.Time{})) >= killAfter }) {
		return nil, errors.New("the first member did not complete its first rounds")
	}
	last.Signal(syscall.SIGKILL)
	at, before := time.Now(), mean(times[event.Applied](first, time.Time{}))
	if err := pause.For(ctx, restartDelay); err != nil {
		return nil, err
	}
	<-last.Ended()
	if err := last.StartUntil(ctx); err != nil {
		return nil, err
	}
	restarted := time.Now()
	back := func() []time.Time { return times[event.Trained](last, restarted) }
	if !wait(ctx, func() bool { return len(back()) > 0 && len(times[event.Applied](first, back()[0])) > 0 }) {
		return nil, fmt.Errorf("the killed member did not train again within %v of its restart", timeout)
	}
	return &killed{Before: before, Stall: longest(times[event.Applied](first, at), at), Back: back()[0].Sub(restarted).Seconds()}, nil
}

// times returns the times of a member's events of one kind since a time. It ignores an incomplete
// last line.
func times[kind any](member *testbed.Node, since time.Time) (all []time.Time) {
	for e, err := range event.Read(member.Events()) {
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
		if pause.For(ctx, 50*time.Millisecond) != nil {
			return false
		}
	}
	return true
}

func closed(ended <-chan struct{}) bool {
	select {
	case <-ended:
		return true
	default:
		return false
	}
}
