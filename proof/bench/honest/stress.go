package main

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/proof/bench/process"
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
				go process.Spin(ctx)
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
		p.mu.Lock()
		member := p.members[0]
		p.mu.Unlock()
		member.Signal(syscall.SIGSTOP)
		_ = pause.For(ctx, stopFor)
		member.Signal(syscall.SIGCONT)
	}
}

// killing kills and restarts one member after another.
func (p *play) killing(ctx context.Context) {
	for i := 0; pause.For(ctx, killEvery) == nil; i = (i + 1) % len(p.members) {
		p.mu.Lock()
		select {
		case <-p.members[i].Ended(): // the run is over
			p.mu.Unlock()
			return
		default:
		}
		member := p.members[i]
		member.Signal(syscall.SIGKILL)
		<-member.Ended()
		_ = pause.For(ctx, startAfter)
		again, err := p.startMember(ctx, i)
		if err == nil {
			p.members[i] = again
		} else {
			fmt.Fprintln(os.Stderr, "start a member again:", err)
		}
		p.mu.Unlock()
	}
}
