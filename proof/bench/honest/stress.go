package main

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"
)

const (
	busyLoops  = 4
	stopEvery  = 20 * time.Second
	stopFor    = 5 * time.Second
	killEvery  = 30 * time.Second
	startAfter = 2 * time.Second
)

// stress begins what a row's members have to bear, until ctx ends.
func (p *play) stress(ctx context.Context) {
	for _, what := range p.row.Stress {
		switch what {
		case "busy":
			for range busyLoops {
				go spin(ctx)
			}
		case "stop":
			go p.stopping(ctx)
		case "kill":
			go p.killing(ctx)
		}
	}
}

// spin uses a core.
func spin(ctx context.Context) {
	for n := 0; ; n++ {
		if n%1_000_000 == 0 && ctx.Err() != nil {
			return
		}
	}
}

// pause waits, and reports whether ctx has not ended meanwhile.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// stopping stops the first member for some seconds, again and again.
func (p *play) stopping(ctx context.Context) {
	for pause(ctx, stopEvery-stopFor) {
		p.mu.Lock()
		member := p.members[0]
		p.mu.Unlock()
		member.Signal(syscall.SIGSTOP)
		pause(ctx, stopFor)
		member.Signal(syscall.SIGCONT)
	}
}

// killing kills one member after the other, and starts it again.
func (p *play) killing(ctx context.Context) {
	for i := 0; pause(ctx, killEvery); i = (i + 1) % len(p.members) {
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
		pause(ctx, startAfter)
		again, err := p.startMember(ctx, i)
		if err == nil {
			p.members[i] = again
		} else {
			fmt.Fprintln(os.Stderr, "start a member again:", err)
		}
		p.mu.Unlock()
	}
}
