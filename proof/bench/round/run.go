package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/proof/bench/process"
	"github.com/psyche-go/psyche/record/event"
)

// clientCount is the number of clients for which the quickstart waits.
const clientCount = 3

// microBatch is the number of sequences that a client's model processes at once, as in a testnet.
const microBatch = 8

// rowTimeout limits a row: only a hang or a very slow machine exceeds it.
const rowTimeout = 15 * time.Minute

const (
	runID      = "round"
	eventsFile = "events.jsonl"
)

// setup is the data that all rows share.
type setup struct {
	bin    string         // folder of both programs
	state  string         // path of the state.toml that rows change
	out    string         // folder for the output of the processes
	common map[string]any // settings of all rows
}

// measure runs a row and analyses its rounds.
func (u setup) measure(ctx context.Context, r row) (_ summary, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, rowTimeout, fmt.Errorf("the row took longer than %v", rowTimeout))
	defer cancel()
	places, end := process.Loopback(clientCount+1), func() error { return nil }
	if r.Delay > 0 {
		if places, end, err = process.Links(process.Link{Delay: time.Duration(r.Delay), Rate: 1_000_000 * r.Mbits, LossPerMille: r.Loss}, clientCount+1); err != nil {
			return summary{}, err
		}
	}
	defer func() { err = errors.Join(err, end()) }()
	dir, err := os.MkdirTemp(u.out, "row-")
	if err != nil {
		return summary{}, fmt.Errorf("make folder: %w", err)
	}
	samples, err := u.run(ctx, r, dir, places)
	if err != nil {
		return summary{}, fmt.Errorf("%w (logs are in %s)", err, dir)
	}
	s, window, err := readLogs(dir)
	if err != nil {
		return s, fmt.Errorf("%w (logs are in %s)", err, dir)
	}
	s.Row, s.Batch, s.DelayMS, s.Load = r.Name, r.Batch, 1000*time.Duration(r.Delay).Seconds(), loadAverage()
	s.ClientsCPU, s.OthersCPU = shares(samples, window)
	return s, os.RemoveAll(filepath.Join(dir, "checkpoints"))
}

// run runs server and clients until the clients have seen the end of the run.
func (u setup) run(ctx context.Context, r row, dir string, places []process.Place) (samples []sample, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	host, address, key, err := u.startServer(ctx, r, dir, places[0])
	if err != nil {
		return nil, err
	}
	defer func() {
		cancel()
		<-host.Ended()
	}()
	var clients []*process.Process
	var pids []int
	defer func() {
		cancel()
		for _, c := range clients {
			<-c.Ended()
		}
	}()
	for i := range clientCount {
		c, err := u.startClient(ctx, i, dir, places[i+1], address, key)
		if err != nil {
			return nil, err
		}
		clients, pids = append(clients, c), append(pids, c.PID())
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watched := make(chan []sample, 1)
	go func() { watched <- watchLoad(watching, host.PID(), pids) }()
	for _, c := range clients {
		if err := c.Wait(); err != nil {
			if ctx.Err() != nil {
				err = context.Cause(ctx)
			}
			return nil, err
		}
	}
	stop()
	return <-watched, nil
}

// startServer starts the server of a row's run and returns its address and key.
func (u setup) startServer(ctx context.Context, r row, dir string, p process.Place) (host *process.Process, address, key string, err error) {
	home, err := process.Folder(dir, "server")
	if err != nil {
		return nil, "", "", err
	}
	state, err := os.ReadFile(u.state)
	if err != nil {
		return nil, "", "", fmt.Errorf("read settings: %w", err)
	}
	text, err := process.Override(state, r.settings(u.common))
	if err != nil {
		return nil, "", "", err
	}
	path := filepath.Join(dir, "state.toml")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		return nil, "", "", fmt.Errorf("write settings: %w", err)
	}
	own, err := server.HostKey(home, rand.Reader)
	if err != nil {
		return nil, "", "", err
	}
	port, err := process.FreePort()
	if err != nil {
		return nil, "", "", err
	}
	host, err = process.Start(ctx, p, "server", filepath.Join(home, "server.log"), filepath.Join(u.bin, "psyche"),
		"server", "run", "--state", path, "--run-id", runID, "--save-state-dir", home, "--events-dir", home,
		"--server-addr", p.Address, "--server-port", strconv.Itoa(port))
	return host, net.JoinHostPort(p.Address, strconv.Itoa(port)), own.ID().String(), err
}

// startClient starts a client, which retries for a while to reach the server.
func (u setup) startClient(ctx context.Context, i int, dir string, p process.Place, address, key string) (*process.Process, error) {
	name := fmt.Sprintf("client-%d", i+1)
	home, err := process.Folder(dir, name)
	if err != nil {
		return nil, err
	}
	own, err := identity.Generate(rand.Reader)
	if err != nil {
		return nil, err
	}
	keyPath := filepath.Join(home, "identity.json")
	if err := identity.SaveKeyFile(keyPath, own); err != nil {
		return nil, err
	}
	return process.Start(ctx, p, name, filepath.Join(home, "client.log"), filepath.Join(u.bin, "psyche-client"),
		"train", "--run-id", runID, "--server-addr", address, "--server-key", key,
		"--identity-secret-key-path", keyPath, "--events-dir", home, "--allow-local-paths",
		"--checkpoint-dir", filepath.Join(dir, "checkpoints", name), "--bind-p2p-address", p.Address,
		"--threads", strconv.Itoa(max(1, runtime.NumCPU()/clientCount)), "--micro-batch-size", strconv.Itoa(microBatch))
}

// readLogs analyses the rounds in the event logs of a row's folder.
func readLogs(dir string) (summary, span, error) {
	host, err := readHost(event.Read(filepath.Join(dir, "server", eventsFile)))
	if err != nil {
		return summary{}, span{}, err
	}
	var clients []*clientRecord
	for i := range clientCount {
		c, err := readClient(event.Read(filepath.Join(dir, fmt.Sprintf("client-%d", i+1), eventsFile)))
		if err != nil {
			return summary{}, span{}, err
		}
		clients = append(clients, c)
	}
	return summarise(clients, host)
}
