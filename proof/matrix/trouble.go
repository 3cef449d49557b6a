package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/proof/testbed"
	"github.com/psyche-go/psyche/record/event"
)

const (
	busyLoops  = 3
	stopFor    = 3 * time.Second
	startAfter = time.Second
	interrupt  = 130 // exit code of a program that Ctrl-C ended
)

// incident is an incident at a step of the run.
type incident struct {
	step uint32
	do   func(ctx context.Context, step uint32) error
}

// incidents returns the incidents of the row, in order.
func (p *play) incidents() (all []incident) {
	steps, _ := p.row.steps()
	at := func(feature, level string, part float64, do func(context.Context, uint32) error) {
		if p.row.has(feature, level) {
			all = append(all, incident{uint32(part * float64(steps)), do})
		}
	}
	at("late", "joins", 0.12, p.joinLate)
	at("slow", "stopped", 0.2, p.stopOne)
	at("kills", "client", 0.33, p.killOne)
	at("kills", "host", 0.33, p.failHost)
	at("leaver", "leaves", 0.5, p.leave)
	at("stop", "resume", 0.65, p.stopAll)
	return all
}

// happen executes the row's incidents, each when the first member has seen its step.
func (p *play) happen(ctx context.Context) error {
	todo := p.incidents()
	watching, stop := context.WithCancel(ctx)
	defer stop()
	go p.watch(watching, stop)
	for e, err := range event.Follow(watching, p.members[0].Events()) {
		if err != nil {
			return err
		}
		state, ok := e.Body.(event.State)
		if !ok {
			continue
		}
		p.within.saw(state.Step)
		if len(todo) > 0 && state.RunState == "RoundTrain" && state.Step >= todo[0].step {
			if err := todo[0].do(ctx, state.Step); err != nil {
				return err
			}
			todo = todo[1:] // the log shows the actual step
		}
		if state.RunState == "Finished" {
			break
		}
	}
	if len(todo) > 0 {
		p.found("incidents", "the run ended or stopped before all incidents were due: %d of %d incidents are missing", len(todo), len(p.incidents()))
	}
	return nil
}

// watch calls stop if the first member ends without being asked to.
func (p *play) watch(ctx context.Context, stop func()) {
	for pause.For(ctx, time.Second) == nil {
		asked, _ := p.members[0].life()
		select {
		case <-p.members[0].Ended():
			if !asked {
				stop()
			}
		default:
		}
	}
}

// joinLate starts an additional member.
func (p *play) joinLate(ctx context.Context, step uint32) error {
	m := p.late
	m.note(step, present, "it joined late")
	return m.start(ctx)
}

// stopOne suspends a member for some seconds.
func (p *play) stopOne(ctx context.Context, step uint32) error {
	m := p.members[slow]
	m.note(step, absent, "it was stopped for some seconds")
	m.Signal(syscall.SIGSTOP)
	defer m.Signal(syscall.SIGCONT)
	_ = pause.For(ctx, stopFor)
	return nil
}

// killOne kills a member and restarts it.
func (p *play) killOne(ctx context.Context, step uint32) error {
	m := p.members[killed]
	m.note(step, absent, "it was killed")
	if err := m.Kill(); err != nil {
		return err
	}
	_ = pause.For(ctx, startAfter)
	return m.start(ctx)
}

// failHost takes the host down for a while.
func (p *play) failHost(ctx context.Context, step uint32) error {
	for _, m := range p.members {
		m.note(step, present, "the host was down")
	}
	return p.host.fail(ctx)
}

// leave makes a member leave permanently, as by Ctrl-C.
func (p *play) leave(ctx context.Context, step uint32) error {
	m := p.members[leaver]
	m.note(step, absent, "it left")
	m.mu.Lock()
	m.left = true
	m.mu.Unlock()
	p.ask(ctx, m)
	return nil
}

// stopAll stops all processes at the same moment, as Ctrl-C in a terminal does, and restarts them.
func (p *play) stopAll(ctx context.Context, step uint32) error {
	var running []*member
	for _, m := range p.members {
		if _, left := m.life(); m.Started() && !left {
			running = append(running, m)
		}
	}
	var requests sync.WaitGroup
	for _, m := range running {
		m.note(step, absent, "everything was stopped and resumed")
		requests.Go(func() { p.ask(ctx, m) })
	}
	requests.Wait()
	if !p.host.chain {
		p.host.end(ctx)
		if err := p.host.start(ctx); err != nil {
			return fmt.Errorf("start the host again: %w", err)
		}
	}
	for _, m := range slices.Backward(running) {
		if err := m.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// ask interrupts a member and expects the exit code of an interrupt. A member that has already
// ended keeps its exit code. A member that has seen the end of the run has nothing to interrupt;
// members that are as fast as the first member may have seen it.
func (p *play) ask(ctx context.Context, m *member) {
	m.mu.Lock()
	m.stopped = true
	m.mu.Unlock()
	m.Signal(syscall.SIGINT)
	if p.ends(ctx, &m.Process) && m.ExitCode() != interrupt && (m.ExitCode() != 0 || !m.sawTheEnd()) {
		p.found("exit", "%s ended with exit code %d after Ctrl-C, want %d", m.Name, m.ExitCode(), interrupt)
	}
}

// starve uses the processors until ctx ends.
func (p *play) starve(ctx context.Context) {
	if p.row.has("starved", "busy") {
		for range busyLoops {
			go testbed.Spin(ctx)
		}
	}
}
