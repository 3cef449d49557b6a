package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"time"

	"github.com/psyche-go/psyche/proof/testbed"
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
	places, end := testbed.Loopback(clientCount+1), func() error { return nil }
	if r.Delay > 0 {
		if places, end, err = testbed.Links(testbed.Link{Delay: time.Duration(r.Delay), Rate: 1_000_000 * r.Mbits, LossPerMille: r.Loss}, clientCount+1); err != nil {
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
func (u setup) run(ctx context.Context, r row, dir string, places []testbed.Place) (samples []sample, err error) {
	state, err := os.ReadFile(cmp.Or(r.State, u.state))
	if err != nil {
		return nil, fmt.Errorf("read settings: %w", err)
	}
	if state, err = testbed.Override(state, r.settings(u.common)); err != nil {
		return nil, err
	}
	n := &testbed.Network{Bin: u.bin, Dir: dir, RunID: runID}
	if err := n.NewServer(places[0], state); err != nil {
		return nil, err
	}
	for _, place := range places[1:] {
		if _, err := n.NewMember(place, "--threads", strconv.Itoa(max(1, runtime.NumCPU()/clientCount)), "--micro-batch-size", strconv.Itoa(microBatch)); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer n.AwaitAll()
	defer cancel()
	if err := n.StartAll(ctx); err != nil {
		return nil, err
	}
	var pids []int
	for _, m := range n.Members {
		pids = append(pids, m.PID())
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watched := make(chan []sample, 1)
	go func() { watched <- watchLoad(watching, n.Host.PID(), pids) }()
	if err := n.AwaitMembers(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	stop()
	return <-watched, nil
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
