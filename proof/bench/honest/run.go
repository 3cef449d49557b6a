package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/proof/bench/process"
)

const (
	runID      = "honest"
	eventsFile = "events.jsonl"
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
	row     row
	dir     string
	world   world
	places  []process.Place
	address string // of the server
	key     string
	port    int
	mu      sync.Mutex // guards members
	members []*process.Process
}

// measure runs a row with audits as its verification_percent.
func (u setup) measure(ctx context.Context, r row, audits int) (o outcome, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, runTimeout, fmt.Errorf("the run took longer than %v", runTimeout))
	defer cancel()
	dir, err := os.MkdirTemp(u.out, "run-")
	if err != nil {
		return o, err
	}
	p := &play{setup: u, row: r, dir: dir, places: process.Loopback(r.Clients + 1), members: make([]*process.Process, r.Clients)}
	if r.Delay > 0 || r.Rate > 0 {
		places, end, err := process.Links(process.Link{Delay: time.Duration(r.Delay), Rate: r.Rate}, r.Clients+1)
		if err != nil {
			return o, err
		}
		defer func() { err = errors.Join(err, end()) }()
		p.places = places
	}
	begun := time.Now()
	if err := p.run(ctx, audits); err != nil {
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
func (p *play) run(ctx context.Context, audits int) error {
	ctx, cancel := context.WithCancel(ctx)
	var owned []*process.Process
	defer func() {
		cancel()
		for _, one := range append(owned, p.members...) {
			if one != nil {
				<-one.Ended()
			}
		}
	}()
	host, close, err := p.startServer(ctx, audits)
	if err != nil {
		return err
	}
	defer close()
	owned = append(owned, host)
	if p.row.Permissioned {
		if err := p.authorize(ctx); err != nil {
			return err
		}
	}
	for i := range p.members {
		if p.members[i], err = p.startMember(ctx, i); err != nil {
			return err
		}
	}
	stress, calm := context.WithCancel(ctx)
	defer calm()
	p.stress(stress)
	go p.endWhenFinished(stress)
	for i := range p.members {
		for {
			p.mu.Lock()
			member := p.members[i]
			p.mu.Unlock()
			err := member.Wait()
			p.mu.Lock()
			again := p.members[i] != member
			p.mu.Unlock()
			if again {
				continue
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			break
		}
	}
	return nil
}

// endWhenFinished ends the members once all have seen the end of the run, because some would wait
// for members that may come back.
func (p *play) endWhenFinished(ctx context.Context) {
	finished := []byte(`"kind":"finished"`)
	for i := 0; i < len(p.members); {
		log, err := os.ReadFile(filepath.Join(p.dir, memberName(i), eventsFile))
		if err == nil && bytes.Contains(log, finished) {
			i++
		} else if pause.For(ctx, time.Second) != nil {
			return
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, member := range p.members {
		member.Signal(syscall.SIGINT)
	}
}

// startServer starts the host, which also serves the data if the row requires it.
func (p *play) startServer(ctx context.Context, audits int) (host *process.Process, close func(), err error) {
	home, err := process.Folder(p.dir, "server")
	if err != nil {
		return nil, nil, err
	}
	if p.port, err = process.FreePort(); err != nil {
		return nil, nil, err
	}
	dataPort, err := process.FreePort()
	if err != nil {
		return nil, nil, err
	}
	dataAddress := net.JoinHostPort(p.places[0].Address, strconv.Itoa(dataPort))
	if p.world, close, err = prepare(ctx, p.bin, p.dir, p.row, dataAddress); err != nil {
		return nil, nil, err
	}
	template, err := os.ReadFile(p.state)
	if err != nil {
		return nil, nil, err
	}
	text, err := process.Override(template, p.row.settings(audits, p.world))
	if err != nil {
		return nil, nil, err
	}
	path := filepath.Join(p.dir, "state.toml")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return nil, nil, err
	}
	own, err := server.HostKey(home, rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	p.address, p.key = net.JoinHostPort(p.places[0].Address, strconv.Itoa(p.port)), own.ID().String()
	args := []string{"server", "run", "--state", path, "--run-id", runID, "--save-state-dir", home, "--events-dir", home,
		"--server-addr", p.places[0].Address, "--server-port", strconv.Itoa(p.port)}
	if p.world.data != "" {
		args = append(args, "--data-config", p.world.data)
	}
	if p.row.Permissioned {
		args = append(args, "--permissioned")
	}
	host, err = process.Start(ctx, p.places[0], "server", filepath.Join(home, "server.log"), filepath.Join(p.bin, "psyche"), args...)
	return host, close, err
}

func memberName(i int) string { return fmt.Sprintf("client-%d", i+1) }

// memberKey returns the key of a member, and its path.
func (p *play) memberKey(i int) (own identity.Key, path string, err error) {
	home, err := process.Folder(p.dir, memberName(i))
	if err != nil {
		return own, "", err
	}
	path = filepath.Join(home, "identity.json")
	if own, err = identity.LoadKeyFile(path); !errors.Is(err, os.ErrNotExist) {
		return own, path, err
	}
	if own, err = identity.Generate(rand.Reader); err == nil {
		err = identity.SaveKeyFile(path, own)
	}
	return own, path, err
}

// authorize admits the members' keys to a permissioned run. The host's key is its join authority.
func (p *play) authorize(ctx context.Context) error {
	for i := range p.members {
		own, _, err := p.memberKey(i)
		if err != nil {
			return err
		}
		admit := exec.CommandContext(ctx, filepath.Join(p.bin, "psyche"), "run", "authorize", own.ID().String(), "--run-id", runID,
			"--keypair", filepath.Join(p.dir, "server", server.HostKeyFile), "--server-addr", p.address, "--server-key", p.key, "--timeout", "1m")
		if out, err := admit.CombinedOutput(); err != nil {
			return fmt.Errorf("authorize %s: %w: %s", memberName(i), err, out)
		}
	}
	return nil
}

// startMember starts a member, or restarts it with the same key.
func (p *play) startMember(ctx context.Context, i int) (*process.Process, error) {
	name := memberName(i)
	home, err := process.Folder(p.dir, name)
	if err != nil {
		return nil, err
	}
	_, keyPath, err := p.memberKey(i)
	if err != nil {
		return nil, err
	}
	args := []string{"train", "--run-id", runID, "--server-addr", p.address, "--server-key", p.key,
		"--identity-secret-key-path", keyPath, "--events-dir", home, "--allow-local-paths", "--allow-inner-data",
		"--checkpoint-dir", filepath.Join(p.dir, "checkpoints", name), "--bind-p2p-address", p.places[i+1].Address,
		"--threads", "1", "--micro-batch-size", "32", "--model-path", p.world.model}
	if i < p.row.BF16 {
		args = append(args, "--compute-dtype", "bf16")
	}
	device := "cpu"
	if i < p.row.GPU {
		device = "cuda"
	}
	args = append(args, "--device", device)
	return process.Start(ctx, p.places[i+1], name, filepath.Join(home, fmt.Sprintf("client-%d.log", time.Now().UnixMilli())),
		filepath.Join(p.bin, "psyche-client"), args...)
}
