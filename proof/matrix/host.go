package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/proof/bench/process"
)

const (
	slotMs      = "100"
	hostPause   = 3 * time.Second // duration of a chain's stop
	hostRestart = time.Second     // between the end of a server and its restart
	begins      = 30 * time.Second
)

// host is the host of the run: a server, or a chain with an optional data server.
type host struct {
	p       *play
	home    string
	chain   bool
	address string
	flags   []string // for members and commands to find the run
	key     identity.Key
	keyPath string // of the main authority
	now     *process.Process
	data    *process.Process // a separate data server
	lives   int
}

// newHost creates the folder and the key of a host.
func newHost(p *play) (*host, error) {
	home, err := process.Folder(p.dir, "host")
	if err != nil {
		return nil, err
	}
	key, err := server.HostKey(home, rand.Reader)
	if err != nil {
		return nil, err
	}
	port, err := twoPorts()
	if err != nil {
		return nil, err
	}
	h := &host{p: p, home: home, key: key, keyPath: filepath.Join(home, server.HostKeyFile), chain: p.row.has("backend", "chain")}
	h.address = net.JoinHostPort(p.place.Address, strconv.Itoa(port))
	if h.chain {
		h.flags = []string{"--rpc", "http://" + h.address, "--ws-rpc", "ws://" + net.JoinHostPort(p.place.Address, strconv.Itoa(port+1))}
	} else {
		h.flags = []string{"--server-addr", h.address, "--server-key", key.ID().String()}
	}
	return h, nil
}

// twoPorts returns a free port whose successor is free too.
func twoPorts() (int, error) {
	for {
		port, err := process.FreePort()
		if err != nil {
			return 0, err
		}
		if next, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+1))); err == nil {
			return port, next.Close()
		}
	}
}

// start starts a life of the server, or the chain.
func (h *host) start(ctx context.Context) error {
	_, port, _ := net.SplitHostPort(h.address)
	args := []string{"chain", "start", "--listen", h.address, "--slot-ms", slotMs}
	if !h.chain {
		args = []string{
			"server", "run", "--state", h.p.statePath(), "--save-state-dir", h.home, "--events-dir", h.home,
			"--server-addr", h.p.place.Address, "--server-port", port,
		}
		if h.p.world.dataConfig != "" {
			args = append(args, "--data-config", h.p.world.dataConfig)
		}
		if !h.p.row.has("admission", "open") {
			args = append(args, "--permissioned")
		}
	}
	h.lives++
	log := filepath.Join(h.home, fmt.Sprintf("host-%d.log", h.lives))
	now, err := process.Start(ctx, h.p.place, "host", log, h.p.psyche(), args...)
	if err != nil {
		return err
	}
	h.now = now
	return h.awaits(ctx, h.address, h.now)
}

// awaits waits until a process listens at an address.
func (h *host) awaits(ctx context.Context, address string, by *process.Process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, begins, fmt.Errorf("no server listens at %s", address))
	defer cancel()
	for {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		if err == nil {
			return connection.Close()
		}
		select {
		case <-by.Ended():
			return fmt.Errorf("the process exited during its start: %w", by.Wait())
		default:
		}
		if pause.For(ctx, 50*time.Millisecond) != nil {
			return context.Cause(ctx)
		}
	}
}

// begin starts the host and the run, and admits the given keys.
func (h *host) begin(ctx context.Context, keys []*member) error {
	if err := h.start(ctx); err != nil {
		return fmt.Errorf("start the host: %w", err)
	}
	granted := ""
	if h.p.row.has("admission", "delegates") {
		granted = filepath.Join(h.home, "granted.json")
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
	if err := h.command(ctx, "run", "set-paused", "resume", "--run-id", runID, "--commitment", "confirmed", "--keypair", h.keyPath); err != nil {
		return err
	}
	return h.serveData(ctx)
}

// create funds all keys and creates the run on the chain, paused.
func (h *host) create(ctx context.Context, keys []*member, granted string) error {
	drop := []string{"chain", "airdrop", "5", h.keyPath}
	for _, m := range keys {
		drop = append(drop, m.keyPath)
	}
	if granted != "" {
		drop = append(drop, granted)
	}
	if err := h.run(ctx, append(drop, h.flags[:2]...)...); err != nil {
		return err
	}
	create := []string{"run", "create", "--state", h.p.statePath(), "--keypair", h.keyPath, "--yes"}
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
		allowed = append(allowed, m.key.ID().String())
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
		if err := h.command(ctx, append([]string{"run", "authorize", key}, h.signedBy(h.keyPath)...)...); err != nil {
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
func (h *host) serveData(ctx context.Context) error {
	if h.p.world.dataConfig == "" {
		return nil
	}
	args := append([]string{
		"data", "serve", "--data-config", h.p.world.dataConfig, "--run-id", runID, "--listen-addr", h.p.world.dataAddr, "--events-dir", filepath.Join(h.home, "data"),
	}, h.flags...)
	served, err := process.Start(ctx, h.p.place, "data server", filepath.Join(h.home, "data.log"), h.p.psyche(), args...)
	if err != nil {
		return err
	}
	h.data = served
	return h.awaits(ctx, h.p.world.dataAddr, served)
}

// fail crashes and restarts the server. A chain, which is in memory only, stops for a while
// instead.
func (h *host) fail(ctx context.Context) error {
	if h.chain {
		h.now.Signal(syscall.SIGSTOP)
		_ = pause.For(ctx, hostPause)
		h.now.Signal(syscall.SIGCONT)
		return nil
	}
	h.now.Signal(syscall.SIGKILL)
	<-h.now.Ended()
	_ = pause.For(ctx, hostRestart)
	return h.start(ctx)
}

// end ends the host's processes as Ctrl-C does, and reports problems.
func (h *host) end(ctx context.Context) {
	for _, one := range []*process.Process{h.data, h.now} {
		if one == nil {
			continue
		}
		one.Signal(syscall.SIGINT)
		if !h.p.ends(ctx, one, "host") {
			continue
		}
		if code := one.ExitCode(); code != 0 {
			h.p.found("exit", "the host ended with exit code %d after Ctrl-C: %v", code, one.Wait())
		}
	}
}

// log returns the path of the run's log: the server's journal, or an archive of the chain.
func (h *host) log(ctx context.Context) (string, error) {
	if !h.chain {
		return server.JournalPath(h.home, runID), nil
	}
	path := filepath.Join(h.home, "run.archive")
	return path, h.command(ctx, "run", "archive", "--run-id", runID, "--output", path, "--once", "--commitment", "confirmed")
}

// command runs a psyche command about the run.
func (h *host) command(ctx context.Context, args ...string) error {
	return h.run(ctx, append(args, h.flags...)...)
}

func (h *host) run(ctx context.Context, args ...string) error {
	command := exec.CommandContext(ctx, h.p.psyche(), args...)
	command.Env = append(os.Environ(), h.p.world.env...)
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("psyche %s %s: %w: %s", args[0], args[1], err, out)
	}
	return nil
}
