package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/psyche-go/psyche/proof/bench/process"
	"github.com/psyche-go/psyche/record/event"
)

const (
	killAfter    = 6 // exchanges
	restartDelay = time.Second
	timeout      = 5 * time.Minute // for the first exchanges, and for anything to happen after the kill
	killExchange = 40
)

// killed kills the last member of a run over loopback without a warning, starts it again after a second where
// the others can go on, and finds out how long they stand still, and when it is back.
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
	if !wait(ctx, func() bool { return n.trained(0, time.Time{}) >= killAfter }) {
		return nil, errors.New("it did not come to its first rounds")
	}
	n.members[members-1].Signal(syscall.SIGKILL)
	at := time.Now()
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
	if !wait(ctx, func() bool { return n.trained(members-1, restarted) > 0 }) {
		return nil, fmt.Errorf("the member was not back after %v", timeout)
	}
	k = &killed{Back: time.Since(restarted).Seconds()}
	k.Stall, err = n.stall(at)
	return k, err
}

// trained counts the batches that a member has trained since a time.
func (n *ownNetwork) trained(i int, since time.Time) (count int) {
	for e, err := range event.Read(filepath.Join(n.dir, fmt.Sprintf("member-%d", i), "events.jsonl")) {
		if err != nil {
			return count
		}
		if _, ok := e.Body.(event.Trained); ok && e.Time.After(since) {
			count++
		}
	}
	return count
}

// stall is the longest time between two applied rounds of the first member from a time on.
func (n *ownNetwork) stall(from time.Time) (longest float64, err error) {
	last := from
	for e, err := range event.Read(filepath.Join(n.dir, "member-0", "events.jsonl")) {
		if err != nil {
			if strings.Contains(err.Error(), "unexpected end") {
				break
			}
			return 0, err
		}
		if _, ok := e.Body.(event.Applied); ok && e.Time.After(from) {
			longest, last = max(longest, e.Time.Sub(last).Seconds()), e.Time
		}
	}
	return longest, nil
}

// wait waits until something is so, for a while.
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
