package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"syscall"
	"time"

	"github.com/psyche-go/psyche/base/child"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/proof/testbed"
)

const (
	slotMs      = 100
	hostPause   = 3 * time.Second // duration of a chain's stop
	hostRestart = time.Second     // between the end of a server and its restart
	begins      = 30 * time.Second
)

// host is the host of the run: a server, or a chain with an optional data server.
type host struct {
	p     *play
	net   *testbed.Network
	chain bool
	data  *child.Process // a separate data server
}

// newHost creates the host of a row whose state.toml has the given text.
func newHost(p *play, state []byte) (*host, error) {
	h := &host{p: p, net: p.net, chain: p.row.has("backend", "chain")}
	if h.chain {
		return h, h.net.NewChain(p.place, slotMs)
	}
	var flags []string
	if p.world.data.Config != "" {
		flags = append(flags, "--data-config", p.world.data.Config)
	}
	if !p.row.has("admission", "open") {
		flags = append(flags, "--permissioned")
	}
	return h, h.net.NewServer(p.place, state, flags...)
}

// start starts a life of the server, or the chain.
func (h *host) start(ctx context.Context) error {
	if err := h.net.Host.StartUntil(ctx); err != nil {
		return err
	}
	return h.awaits(ctx, h.net.Address, &h.net.Host.Process)
}

// awaits waits until a process listens at an address.
func (h *host) awaits(ctx context.Context, address string, by *child.Process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, begins, fmt.Errorf("no server listens at %s", address))
	defer cancel()
	return by.AwaitPort(ctx, address)
}

// begin starts the host and the run, and admits the given keys.
func (h *host) begin(ctx context.Context, keys []*member) error {
	if err := h.start(ctx); err != nil {
		return fmt.Errorf("start the host: %w", err)
	}
	granted := ""
	if h.p.row.has("admission", "delegates") {
		granted = filepath.Join(h.net.Host.Dir, "granted.json")
		key, err := identity.Generate(rand.Reader)
		if err != nil {
			return err
		}
		if err := identity.SaveKeyFile(granted, key); err != nil {
			return err
		}
	}
	if h.chain {
		if err := h.create(ctx, keys, granted); err != nil {
			return err
		}
	}
	if err := h.admit(ctx, keys, granted); err != nil || !h.chain {
		return err
	}
	if err := h.command(ctx, "run", "set-paused", "resume", "--run-id", runID, "--commitment", "confirmed", "--keypair", h.net.Host.KeyPath); err != nil {
		return err
	}
	return h.serveData(ctx)
}

// create funds all keys and creates the run on the chain, paused.
func (h *host) create(ctx context.Context, keys []*member, granted string) error {
	drop := []string{"chain", "airdrop", "5", h.net.Host.KeyPath}
	for _, m := range keys {
		drop = append(drop, m.KeyPath)
	}
	if granted != "" {
		drop = append(drop, granted)
	}
	if _, err := child.Output(ctx, h.p.world.env, h.net.Psyche(), append(drop, h.net.Flags[:2]...)...); err != nil {
		return err
	}
	create := []string{"run", "create", "--state", h.net.StatePath(), "--keypair", h.net.Host.KeyPath, "--yes"}
	if !h.p.row.has("admission", "open") {
		create = append(create, "--permissioned")
	}
	return h.command(ctx, create...)
}

// maxDelegates is the maximum number of a key's delegates.
const maxDelegates = 4

// admit authorizes the keys, or one key with the first of them as its delegates.
func (h *host) admit(ctx context.Context, keys []*member, granted string) error {
	if h.p.row.has("admission", "open") {
		return nil
	}
	var allowed []string
	for _, m := range keys {
		allowed = append(allowed, m.Key.ID().String())
	}
	if granted != "" {
		key, err := identity.LoadKeyFile(granted)
		if err != nil {
			return err
		}
		delegates := allowed[:min(maxDelegates, len(allowed))]
		allowed = append([]string{key.ID().String()}, allowed[len(delegates):]...)
		if err := h.authorize(ctx, allowed); err != nil {
			return err
		}
		name := append([]string{"run", "set-delegates"}, delegates...)
		return h.command(ctx, append(name, h.signedBy(granted)...)...)
	}
	return h.authorize(ctx, allowed)
}

func (h *host) authorize(ctx context.Context, keys []string) error {
	for _, key := range keys {
		if err := h.net.Authorize(ctx, key, "--commitment", "confirmed"); err != nil {
			return err
		}
	}
	return nil
}

// signedBy returns the flags of a command that changes the run.
func (h *host) signedBy(key string) []string {
	return []string{"--run-id", runID, "--keypair", key, "--commitment", "confirmed"}
}

// serveData starts a data server for a run on a chain. A server serves data itself.
func (h *host) serveData(ctx context.Context) (err error) {
	if h.p.world.data.Config == "" {
		return nil
	}
	args := append([]string{
		"data", "serve", "--data-config", h.p.world.data.Config, "--run-id", runID, "--listen-addr", h.p.world.dataAddr, "--events-dir", filepath.Join(h.net.Host.Dir, "data"),
	}, h.net.Flags...)
	if h.data, err = testbed.Start(ctx, h.p.place, "data server", filepath.Join(h.net.Host.Dir, "data.log"), h.net.Psyche(), args...); err != nil {
		return err
	}
	return h.awaits(ctx, h.p.world.dataAddr, h.data)
}

// fail crashes and restarts the server. A chain, which is in memory only, stops for a while
// instead.
func (h *host) fail(ctx context.Context) error {
	if h.chain {
		h.net.Host.Signal(syscall.SIGSTOP)
		_ = pause.For(ctx, hostPause)
		h.net.Host.Signal(syscall.SIGCONT)
		return nil
	}
	if err := h.net.Host.Kill(); err != nil {
		return err
	}
	_ = pause.For(ctx, hostRestart)
	return h.start(ctx)
}

// end ends the host's processes as Ctrl-C does, and reports problems.
func (h *host) end(ctx context.Context) {
	for _, one := range []*child.Process{h.data, &h.net.Host.Process} {
		if one == nil {
			continue
		}
		one.Signal(syscall.SIGINT)
		if !h.p.ends(ctx, one) {
			continue
		}
		if code := one.ExitCode(); code != 0 {
			h.p.found("exit", "the host ended with exit code %d after Ctrl-C: %v", code, one.Failure())
		}
	}
}

// log returns the path of the run's log: the server's journal, or an archive of the chain.
func (h *host) log(ctx context.Context) (string, error) {
	if !h.chain {
		return server.JournalPath(h.net.Host.Dir, runID), nil
	}
	path := filepath.Join(h.net.Host.Dir, "run.archive")
	return path, h.command(ctx, "run", "archive", "--run-id", runID, "--output", path, "--once", "--commitment", "confirmed")
}

// command runs a psyche command about the run.
func (h *host) command(ctx context.Context, args ...string) error {
	_, err := h.net.Command(ctx, args...)
	return err
}
