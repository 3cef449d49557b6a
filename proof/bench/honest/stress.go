package main

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/proof/testbed"
)

const (
	busyLoops  = 4
	stopEvery  = 20 * time.Second
	stopFor    = 5 * time.Second
	killEvery  = 30 * time.Second
	startAfter = 2 * time.Second
)

// stress applies a row's stress until ctx ends.
func (p *play) stress(ctx context.Context) {
	for _, kind := range p.row.Stress {
		switch kind {
		case "busy":
			for range busyLoops {
				go testbed.Spin(ctx)
			}
		case "stop":
			go p.stopping(ctx)
		case "kill":
			go p.killing(ctx)
		}
	}
}

// stopping suspends the first member for some seconds, again and again.
func (p *play) stopping(ctx context.Context) {
	for pause.For(ctx, stopEvery-stopFor) == nil {
		member := p.net.Members[0]
		member.Signal(syscall.SIGSTOP)
		_ = pause.For(ctx, stopFor)
		member.Signal(syscall.SIGCONT)
	}
}

// killing kills and restarts one member after another, until one has ended by itself.
func (p *play) killing(ctx context.Context) {
	for i := 0; pause.For(ctx, killEvery) == nil && p.restart(ctx, p.net.Members[i]); i = (i + 1) % len(p.net.Members) {
	}
}

// restart kills and restarts a member. It returns false if the member had already ended.
func (p *play) restart(ctx context.Context, member *testbed.Node) bool {
	p.restarting.Lock()
	defer p.restarting.Unlock()
	select {
	case <-member.Ended(): // the run is over
		return false
	default:
	}
	err := member.Kill()
	_ = pause.For(ctx, startAfter)
	if err == nil {
		err = member.StartUntil(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "start a member again:", err)
	}
	return true
}
