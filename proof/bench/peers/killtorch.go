package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/proof/testbed"
)

// killTorch makes the measurement of killed for a PyTorch system.
func (b *bench) killTorch(ctx context.Context, s system, dir string) (*killed, error) {
	var more []string
	if s.Torchrun {
		more = []string{"--checkpoint", filepath.Join(dir, "checkpoint")}
	}
	r, err := b.newTorchRun(s, dir, testbed.Loopback(members), killExchange, more...)
	if err != nil {
		return nil, err
	}
	defer r.end()
	switch {
	case s.Torchrun:
		return r.killUnderTorchrun(ctx)
	case s.Torch == hivemind:
		return r.killAndRestart(ctx)
	}
	return r.killForGood(ctx)
}

// killForGood kills the last member of a run without restarts.
func (r *torchRun) killForGood(ctx context.Context) (*killed, error) {
	k, at, err := r.killLast(ctx)
	if err != nil {
		return nil, err
	}
	ended := func() bool { return closed(r.members[0].Ended()) }
	if !wait(ctx, func() bool { return ended() || len(r.exchanges(rankLog(0), 0, at)) > 1 }) {
		k.Message = fmt.Sprintf("no exchange and no exit for %v after the kill", timeout)
		return k, nil
	}
	if k.Stall, k.Failed = time.Since(at).Seconds(), ended(); k.Failed {
		k.Message = "the others ended with an error"
	}
	return k, nil
}

// killAndRestart kills the last member and restarts it.
func (r *torchRun) killAndRestart(ctx context.Context) (*killed, error) {
	k, at, err := r.killLast(ctx)
	if err != nil {
		return nil, err
	}
	if err := pause.For(ctx, restartDelay); err != nil {
		return nil, err
	}
	<-r.members[members-1].Ended()
	const log = "again.log"
	again, err := r.start(ctx, members-1, log)
	if err != nil {
		return nil, err
	}
	r.members[members-1] = again
	restarted := time.Now()
	back := func() []line { return r.exchanges(log, members-1, restarted) }
	if !wait(ctx, func() bool { return len(back()) > 0 && len(r.exchanges(rankLog(0), 0, unix(back()[0].Time))) > 0 }) {
		return nil, fmt.Errorf("the killed member did not exchange again within %v of its restart", timeout)
	}
	k.Stall, k.Back = longest(r.times(rankLog(0), at), at), unix(back()[0].Time).Sub(restarted).Seconds()
	return k, nil
}

// killLast starts all members, and kills the last one when the first has made some exchanges. It
// returns the time of the kill.
func (r *torchRun) killLast(ctx context.Context) (k *killed, at time.Time, err error) {
	if err := r.startAll(ctx); err != nil {
		return nil, at, err
	}
	if !wait(ctx, func() bool { return len(r.times(rankLog(0), at)) >= killAfter }) {
		return nil, at, errors.New("the members did not complete their first exchanges")
	}
	kill(r.members[members-1])
	return &killed{Before: mean(r.times(rankLog(0), at))}, time.Now(), nil
}

// killUnderTorchrun kills the last rank of a run under torchrun, which restarts all ranks together.
func (r *torchRun) killUnderTorchrun(ctx context.Context) (*killed, error) {
	const log = "torchrun.log"
	port, err := child.FreePort()
	if err != nil {
		return nil, err
	}
	arguments := []string{
		"-m", "torch.distributed.run", "--nnodes", "1", "--nproc-per-node", strconv.Itoa(members), "--max-restarts", "3",
		"--local-addr", r.places[0].Address, "--rdzv-backend", "c10d", "--rdzv-endpoint", net.JoinHostPort(r.places[0].Address, strconv.Itoa(port)),
	}
	one, err := testbed.Start(ctx, r.place(0), "torchrun", filepath.Join(r.dir, log), r.bench.python, append(arguments, r.arguments...)...)
	if err != nil {
		return nil, err
	}
	defer func() { one.Signal(syscall.SIGTERM); <-one.Ended() }()
	last := func(since time.Time) []line { return r.exchanges(log, members-1, since) }
	if !wait(ctx, func() bool { return len(last(time.Time{})) >= killAfter }) {
		return nil, errors.New("the members did not complete their first exchanges")
	}
	before := last(time.Time{})
	if err := syscall.Kill(before[len(before)-1].PID, syscall.SIGKILL); err != nil {
		return nil, fmt.Errorf("kill the last rank: %w", err)
	}
	at := time.Now()
	k := &killed{Before: (before[len(before)-1].Time - before[0].Time) / float64(len(before)-1)}
	again := func() bool { return len(last(at)) > 0 && len(r.exchanges(log, 0, at)) > 1 }
	if !wait(ctx, func() bool { return again() || closed(one.Ended()) }) {
		return nil, fmt.Errorf("torchrun did not train again within %v of the kill", timeout)
	}
	if !again() {
		k.Stall, k.Failed, k.Message = time.Since(at).Seconds(), true, "all restarts failed, and torchrun ended with an error"
		return k, nil
	}
	k.Stall, k.Back = longest(r.times(log, at), at), unix(last(at)[0].Time).Sub(at).Seconds()
	k.Lost = before[len(before)-1].Step + 1 - last(at)[0].Step
	return k, nil
}

// exchanges returns the exchanges that a rank has logged since a time.
func (r *torchRun) exchanges(log string, rank int, since time.Time) (made []line) {
	lines, err := r.lines(log)
	if err != nil {
		return nil
	}
	for _, l := range lines {
		if l.Loss > 0 && l.Rank == rank && unix(l.Time).After(since) {
			made = append(made, l)
		}
	}
	return made
}

// times returns the times of the first member's exchanges since a time.
func (r *torchRun) times(log string, since time.Time) (all []time.Time) {
	for _, l := range r.exchanges(log, 0, since) {
		all = append(all, unix(l.Time))
	}
	return all
}
