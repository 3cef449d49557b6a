package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/proof/testbed"
)

const (
	runID      = "honest"
	runTimeout = 40 * time.Minute // of a run: only a hang or a very slow machine exceeds it
)

// setup is the data that all rows share.
type setup struct {
	bin   string // folder of both programs
	state string // path of the state.toml that rows change
	out   string // folder for the output of the processes
}

// play is a run in progress.
type play struct {
	setup
	row        row
	world      world
	net        *testbed.Network
	restarting sync.Mutex // held while a member is killed and restarted
}

// measure runs a row with audits as its verification_percent.
func (s setup) measure(ctx context.Context, r row, audits int) (o outcome, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, runTimeout, fmt.Errorf("the run took longer than %v", runTimeout))
	defer cancel()
	dir, err := os.MkdirTemp(s.out, "run-")
	if err != nil {
		return o, err
	}
	p := &play{setup: s, row: r, net: &testbed.Network{Bin: s.bin, Dir: dir, RunID: runID}}
	places := testbed.Loopback(r.Clients + 1)
	if r.Delay > 0 || r.Rate > 0 {
		var end func() error
		if places, end, err = testbed.Links(testbed.Link{Delay: time.Duration(r.Delay), Rate: r.Rate}, r.Clients+1); err != nil {
			return o, err
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	begun := time.Now()
	if err := p.run(ctx, places, audits); err != nil {
		return o, fmt.Errorf("%w (logs are in %s)", err, dir)
	}
	if o, err = p.read(ctx); err != nil {
		return o, fmt.Errorf("%w (logs are in %s)", err, dir)
	}
	o.Row, o.Audits, o.Seconds = r.Name, audits, time.Since(begun).Seconds()
	if o.clean() {
		return o, os.RemoveAll(dir)
	}
	fmt.Fprintln(os.Stderr, "logs are in", dir)
	return o, nil
}

// run runs server and members until the members have seen the end of the run.
func (p *play) run(ctx context.Context, places []testbed.Place, audits int) error {
	end, err := p.prepare(ctx, places, audits)
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithCancel(ctx)
	defer p.net.AwaitAll()
	defer cancel()
	if err := p.net.Host.StartUntil(ctx); err != nil {
		return err
	}
	if p.row.Permissioned {
		for _, member := range p.net.Members {
			if err := p.net.Authorize(ctx, member.Key.ID().String(), "--timeout", "1m"); err != nil {
				return err
			}
		}
	}
	for _, member := range p.net.Members {
		if err := member.StartUntil(ctx); err != nil {
			return err
		}
	}
	stress, calm := context.WithCancel(ctx)
	defer calm()
	p.stress(stress)
	go p.endWhenFinished(stress)
	for _, member := range p.net.Members {
		if err := p.await(member); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return nil
}

// await waits until a member has ended without a restart.
func (p *play) await(member *testbed.Node) error {
	for {
		ended := member.Ended()
		<-ended
		p.restarting.Lock()
		again := member.Ended() != ended
		p.restarting.Unlock()
		if !again {
			return member.Failure()
		}
	}
}

// endWhenFinished ends the members once all have seen the end of the run, because some would wait
// for members that may come back.
func (p *play) endWhenFinished(ctx context.Context) {
	finished := []byte(`"kind":"finished"`)
	for i := 0; i < len(p.net.Members); {
		log, err := os.ReadFile(p.net.Members[i].Events())
		if err == nil && bytes.Contains(log, finished) {
			i++
		} else if pause.For(ctx, time.Second) != nil {
			return
		}
	}
	p.restarting.Lock()
	defer p.restarting.Unlock()
	for _, member := range p.net.Members {
		member.Signal(syscall.SIGINT)
	}
}

// prepare creates the row's files, the host, which also serves the data if the row requires it, and
// the members. end ends the servers of the data.
func (p *play) prepare(ctx context.Context, places []testbed.Place, audits int) (end func(), err error) {
	dataPort, err := child.FreePort()
	if err != nil {
		return nil, err
	}
	dataAddress := net.JoinHostPort(places[0].Address, strconv.Itoa(dataPort))
	if p.world, err = prepare(ctx, p.net.Client(), p.net.Dir, p.row, dataAddress); err != nil {
		return nil, err
	}
	for i := range places {
		places[i].Env = p.world.env
	}
	if err := p.makeNodes(places, audits); err != nil {
		p.world.end()
		return nil, err
	}
	return p.world.end, nil
}

// makeNodes creates the host and the members.
func (p *play) makeNodes(places []testbed.Place, audits int) error {
	state, err := os.ReadFile(p.state)
	if err != nil {
		return err
	}
	if state, err = testbed.Override(state, p.row.settings(audits, p.world)); err != nil {
		return err
	}
	var flags []string
	if p.world.data.Config != "" {
		flags = append(flags, "--data-config", p.world.data.Config)
	}
	if p.row.Permissioned {
		flags = append(flags, "--permissioned")
	}
	if err := p.net.NewServer(places[0], state, flags...); err != nil {
		return err
	}
	for i, place := range places[1:] {
		flags := []string{"--threads", "1", "--micro-batch-size", "32", "--model-path", p.world.model}
		if i < p.row.BF16 {
			flags = append(flags, "--compute-dtype", "bf16")
		}
		device := "cpu"
		if i < p.row.GPU {
			device = "cuda"
		}
		if _, err := p.net.NewMember(place, append(flags, "--device", device)...); err != nil {
			return err
		}
	}
	return nil
}
