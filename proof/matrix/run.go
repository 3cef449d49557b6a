package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/proof/testbed"
)

// Time limits that only a hang exceeds, even on slow machines.
const (
	standstill = 6 * time.Minute  // of a run, from one step to the next
	exitLimit  = 60 * time.Second // of a process that has finished its work
)

// setup is the data that all rows share.
type setup struct {
	bin         string // folder of both programs
	shim        string // path of the libtorch shim, if the client does not find it
	root        string // of the module
	out         string // folder for the output of the processes
	evaluations string // folder of data sets of tasks
	keep        bool   // also keep the output of rows without findings
}

func (s setup) psyche() string { return filepath.Join(s.bin, "psyche") }
func (s setup) client() string { return filepath.Join(s.bin, "psyche-client") }

// play is a running row.
type play struct {
	setup
	row       row
	dir       string
	world     *world
	place     testbed.Place // of the host, and of the members with fast links
	far       testbed.Place // of the member with the slow link
	net       *testbed.Network
	host      *host
	members   []*member
	late      *member // joins late; nil: none
	slanderer *member // accuses the member with the slow link; nil: none
	within    *patience

	mu       sync.Mutex // guards the fields below
	findings []finding
	lost     map[string]int // number of batches without a counted result, by reason
	batches  int
	retried  uint64 // number of sequences that rounds trained again
	longest  phase
}

// finding is an error in a run.
type finding struct{ kind, text string }

// found records a finding.
func (p *play) found(kind, format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.findings = append(p.findings, finding{kind, fmt.Sprintf(format, args...)})
}

// patience detects a run that makes no progress. It is not safe for concurrent use.
type patience struct {
	timer  *time.Timer
	newest uint32 // newest seen step
}

// withPatience returns a context that ends after standstill without a newer step.
func withPatience(ctx context.Context) (context.Context, *patience, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(standstill, func() { cancel(fmt.Errorf("the run made no progress for %v", standstill)) })
	return ctx, &patience{timer: timer}, func() {
		timer.Stop()
		cancel(nil)
	}
}

// saw records the run's step.
func (p *patience) saw(step uint32) {
	if step > p.newest {
		p.newest = step
		p.timer.Reset(standstill)
	}
}

// outcome is the result of a row.
type outcome struct {
	row      row
	seconds  float64
	batches  int
	lost     map[string]int
	retried  uint64
	longest  phase
	findings []finding
	skipped  string // reason why it did not run; empty: it ran
	dir      string // of the logs, if they are kept
}

// run runs a row and checks it. It returns an error if the row could not run at all.
func (s setup) run(ctx context.Context, r row) (o outcome, err error) {
	began := time.Now()
	dir, err := os.MkdirTemp(s.out, fmt.Sprintf("row-%d-", r.number))
	if err != nil {
		return o, err
	}
	p := &play{setup: s, row: r, dir: dir, net: &testbed.Network{Bin: s.bin, Dir: dir, RunID: runID}, lost: map[string]int{}}
	p.world, err = s.makeWorld(ctx, r, dir)
	defer p.world.end()
	if err != nil {
		return o, err
	}
	end, err := p.findPlaces()
	if errors.Is(err, testbed.ErrNoLinks) {
		return outcome{row: r, skipped: err.Error()}, os.RemoveAll(dir)
	}
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, end()) }()
	text, err := r.state(p.world)
	if err != nil {
		return o, err
	}
	if err := os.WriteFile(p.net.StatePath(), text, 0o644); err != nil {
		return o, err
	}
	p.validate(ctx)
	if r.refused == "" {
		p.train(ctx, text)
	}
	if ctx.Err() != nil {
		return o, context.Cause(ctx)
	}
	o = outcome{row: r, seconds: time.Since(began).Seconds(), batches: p.batches, lost: p.lost, retried: p.retried, longest: p.longest, findings: p.findings, dir: dir}
	if len(p.findings) == 0 && !s.keep {
		o.dir = ""
		return o, os.RemoveAll(dir)
	}
	return o, nil
}

// findPlaces chooses the places of the row's processes. The caller must call end after they have
// ended.
func (p *play) findPlaces() (end func() error, err error) {
	l := links{here: testbed.Loopback(1)[0], far: testbed.Loopback(1)[0], end: func() error { return nil }}
	if p.row.refused == "" && !p.row.has("link", "fast") {
		if l, err = p.row.makeLinks(p.world); err != nil {
			return nil, err
		}
	}
	p.place, p.far = l.here, l.far
	p.place.Env, p.far.Env = p.world.env, p.world.env
	if p.world.dataPort != "" {
		p.world.dataAddr = net.JoinHostPort(p.place.Address, p.world.dataPort)
		p.world.data.Location = map[string]any{"Server": p.world.dataAddr}
	}
	return l.end, nil
}

// validate runs the command that validates the row's settings. It must refuse a forbidden combination
// with an explanation. A server must refuse the combination at its start too.
func (p *play) validate(ctx context.Context) {
	args := []string{"--state", p.net.StatePath()}
	if p.world.data.Config != "" {
		args = append(args, "--data-config", p.world.data.Config)
	}
	saved := filepath.Join(p.dir, "refused")
	commands := map[string][]string{"validate-config": append([]string{"server", "validate-config"}, args...)}
	if p.row.refused != "" {
		commands["run"] = append([]string{"server", "run", "--server-addr", "127.0.0.1", "--save-state-dir", saved}, args...)
	}
	for name, args := range commands {
		command := exec.CommandContext(ctx, p.psyche(), args...)
		command.Env = append(os.Environ(), p.world.env...)
		out, err := command.CombinedOutput()
		switch {
		case p.row.refused == "" && err != nil:
			p.found("refused", "psyche server %s: %v: %s", name, err, out)
		case p.row.refused != "" && err == nil:
			p.found("not refused", "psyche server %s accepted the configuration", name)
		case !strings.Contains(string(out), p.row.refused):
			p.found("not refused", "psyche server %s: output lacks %q: %s", name, p.row.refused, out)
		}
	}
	if _, err := os.Stat(saved); !errors.Is(err, os.ErrNotExist) {
		p.found("not refused", "psyche server run created a folder before it refused the configuration")
	}
}

// train runs the row's run to its end and checks it.
func (p *play) train(ctx context.Context, state []byte) {
	ctx, within, end := withPatience(ctx)
	p.within = within
	defer p.clear() // after end, which ends the remaining processes
	defer end()
	if err := p.begin(ctx, state); err != nil {
		p.found("run", "%v", errors.Join(err, context.Cause(ctx)))
		return
	}
	log, err := p.host.log(ctx)
	if err == nil {
		err = p.check(log)
	}
	if err != nil {
		p.found("log", "%v", err)
	}
	p.host.end(ctx)
	p.leftovers()
}

// begin starts everything, executes the incidents, and waits until the members have ended.
func (p *play) begin(ctx context.Context, state []byte) (err error) {
	if p.host, err = newHost(p, state); err != nil {
		return err
	}
	if err := p.makeMembers(ctx); err != nil {
		return err
	}
	if err := p.host.begin(ctx, p.members); err != nil {
		return err
	}
	for _, m := range p.members {
		if m == p.late {
			continue
		}
		if err := m.start(ctx); err != nil {
			return err
		}
	}
	starving, end := context.WithCancel(ctx)
	defer end()
	p.starve(starving)
	if err := p.happen(ctx); err != nil {
		return err
	}
	for _, m := range p.members {
		if _, left := m.life(); !m.Started() || left {
			continue
		}
		select {
		case <-m.Ended():
		case <-ctx.Done():
			return fmt.Errorf("%s has not ended", m.Name)
		}
		if err := m.Failure(); err != nil {
			p.found("exit", "%s: %v", m.Name, err)
		}
	}
	return nil
}

// makeMembers makes the members of the row. It starts none of them.
func (p *play) makeMembers(ctx context.Context) error {
	for i := range members {
		place := p.place
		if i == slow {
			place = p.far
		}
		if _, err := p.newMember(place); err != nil {
			return err
		}
	}
	if p.row.has("slanderer", "accuses") {
		program, err := p.setup.slanderer(ctx)
		if err != nil {
			return err
		}
		if p.slanderer, err = p.newMember(p.place); err != nil {
			return err
		}
		p.slanderer.Program, p.slanderer.Env = program, append(slices.Clone(p.slanderer.Env), victimVariable+"="+p.members[slow].Key.ID().String())
	}
	if p.row.has("late", "joins") {
		late, err := p.newMember(p.place)
		if err != nil {
			return err
		}
		p.late = late
	}
	return nil
}

// ends waits for a process that has finished its work, and reports whether it has ended.
func (p *play) ends(ctx context.Context, one *child.Process) bool {
	ctx, cancel := context.WithTimeout(ctx, exitLimit)
	defer cancel()
	select {
	case <-one.Ended():
		return true
	case <-ctx.Done():
		p.found("exit", "%s has not ended within %v", one.Name, exitLimit)
		return false
	}
}

// clear waits for the processes, whose context has ended.
func (p *play) clear() {
	p.net.AwaitAll()
	if p.host != nil && p.host.data != nil {
		<-p.host.data.Ended()
	}
}
