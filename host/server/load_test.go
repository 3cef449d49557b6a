package server_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/backend"
)

// Flags of TestLoad. `make load` sets them for a full-size run.
var (
	loadClients = flag.Int("load.clients", 12, "clients of TestLoad")
	loadRounds  = flag.Int("load.rounds", 4, "rounds of TestLoad")
	loadTrain   = flag.Duration("load.train", 100*time.Millisecond, "how long a client of TestLoad pretends to train")
	loadKill    = flag.Duration("load.kill", time.Second, "time between two kills of a client in TestLoad")
)

const (
	loadClientsVariable = "PSYCHE_TEST_LOAD_CLIENTS"
	loadRoundsVariable  = "PSYCHE_TEST_LOAD_ROUNDS"
)

// loadRun returns the options of the server process of TestLoad: epochs of ten rounds, on the real
// clock.
func loadRun(o *server.Options) {
	clients, _ := strconv.Atoi(os.Getenv(loadClientsVariable))
	rounds, _ := strconv.Atoi(os.Getenv(loadRoundsVariable))
	o.HTTPListen = "127.0.0.1:0"
	o.Runs = []server.Genesis{func(host coordinator.ClientID) (coordinator.State, error) {
		return coordinator.New(runID, host, coordinator.Config{
			WarmupTime: 30_000, CooldownTime: 30_000, RoundsPerEpoch: 10, MaxRoundTrainTime: 30_000, RoundWitnessTime: 1000,
			WaitingForMembersExtraTime: 1000, GlobalBatchSizeStart: 1024, GlobalBatchSizeEnd: 1024, TotalSteps: uint32(rounds),
			InitMinClients: uint16(clients * 3 / 4), MinClients: uint16(clients / 2),
		}, coordinator.Model{MaxSeqLen: 512, Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointDummy}})
	}}
}

// loadClient simulates a client process: a fakeClient that can be killed.
type loadClient struct {
	key  identity.Key
	kill chan struct{}
}

// run runs the client until the run is finished, with a restart after each kill.
func (l *loadClient) run(ctx context.Context, t *testing.T, address string) {
	for life := 0; ; life++ {
		c, err := tcp.Dial(ctx, tcp.Options{Addr: address, RunID: runID, Key: l.key, MaxElapsed: time.Minute, Addrs: []string{
			"/ip4/203.0.113.7/tcp/4001", "/ip4/203.0.113.7/udp/4001/quic-v1",
		}})
		if err != nil {
			if ctx.Err() == nil {
				t.Error(err)
			}
			return
		}
		finished := l.live(ctx, t, c, life > 0)
		_ = c.Close()
		if finished {
			return
		}
		time.Sleep(time.Duration(200+rand.IntN(800)) * time.Millisecond) // time to start a process
	}
}

// live reacts to updates of the server until the client is killed. A client that restarts has lost the
// model and joins again.
func (l *loadClient) live(ctx context.Context, t *testing.T, c *tcp.Client, again bool) (finished bool) {
	f := &fakeClient{backend: c, id: coordinator.ClientID(l.key.ID())}
	var submitting sync.WaitGroup
	defer submitting.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for {
		var u backend.Update
		select {
		case <-l.kill:
			return false
		case <-ctx.Done():
			return true
		case update, ok := <-c.Updates():
			if !ok {
				t.Errorf("client lost: %v", c.Err())
				return true
			}
			u = update
		}
		if u.State.RunState == coordinator.Finished {
			return true
		}
		action := f.react(u.State)
		if again {
			again, action = false, coordinator.Join{Epoch: u.State.Progress.Epoch}
		}
		if action == nil {
			continue
		}
		submitting.Go(func() {
			if _, ok := action.(coordinator.WitnessRound); ok && !pause(ctx, *loadTrain) {
				return
			}
			if err := c.Submit(ctx, action); err != nil && !isLate(err) && ctx.Err() == nil {
				t.Error(err)
			}
		})
	}
}

func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// isLate reports whether the run had already moved on, or the connection ended in the meantime.
func isLate(err error) bool {
	return slices.ContainsFunc([]error{
		coordinator.ErrWrongState, coordinator.ErrWrongStep, coordinator.ErrWrongEpoch, coordinator.ErrDuplicate,
		coordinator.ErrNotMember, coordinator.ErrHalted, backend.ErrDisconnected, backend.ErrClosed,
	}, func(expected error) bool { return errors.Is(err, expected) })
}

// TestLoad plays a run with many fake trainers on a server process, over TCP and TLS. It kills one
// client every second, and prints the cost.
func TestLoad(t *testing.T) {
	clients, rounds := *loadClients, *loadRounds
	host := startChild(t, "load", t.TempDir(), "127.0.0.1:0",
		fmt.Sprintf("%s=%d", loadClientsVariable, clients), fmt.Sprintf("%s=%d", loadRoundsVariable, rounds))
	defer host.end()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute+time.Duration(rounds)*10*time.Second)
	defer cancel()
	var working sync.WaitGroup
	all := make([]*loadClient, clients)
	for i := range all {
		all[i] = &loadClient{key: identity.FromSeed([identity.SeedSize]byte{byte(i), byte(i >> 8), 1}), kill: make(chan struct{}, 1)}
		working.Go(func() { all[i].run(ctx, t, host.address) })
	}
	killed := 0
	working.Go(func() {
		ticker := time.NewTicker(*loadKill)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				select {
				case all[rand.IntN(clients)].kill <- struct{}{}:
					killed++
				default: // the client is already dead
				}
			}
		}
	})
	began := time.Now()
	watch := observe(t, ctx, host.address)
	elapsed := time.Since(began)
	metrics := metricsOf(t, host.web)
	memory := peakMemory(host.Process.Pid)
	cancel()
	working.Wait()
	if t.Failed() || len(watch.train) == 0 {
		t.Fatalf("the run did not finish; it was in %s", watch.last)
	}
	if got := metrics[`psyche_server_run_claimed_loss{of="median",run="test"}`]; got != 2.345 {
		t.Errorf("the server reports %v as the median of the claimed losses", got)
	}
	perClientRound := func(bytes float64) float64 { return bytes / float64(clients) / float64(rounds) / 1024 }
	t.Logf("%d clients, %d rounds in %v, %d kills", clients, rounds, elapsed.Round(time.Millisecond), killed)
	t.Logf("round: training %v, overhead until its proof median %v, longest %v; then RoundWitness, median %v",
		*loadTrain, (median(watch.train) - *loadTrain).Round(time.Millisecond), (slices.Max(watch.train) - *loadTrain).Round(time.Millisecond), median(watch.witness).Round(time.Millisecond))
	t.Logf("server: peak memory %d MiB, CPU %.1f s", memory>>20, metrics["process_cpu_seconds_total"])
	t.Logf("for each client and round: sent %.1f KiB, received %.1f KiB; state %.1f KiB as deltas, %.1f KiB whole; peers %.1f KiB as deltas, %.1f KiB whole",
		perClientRound(metrics["psyche_server_sent_bytes_total"]), perClientRound(metrics["psyche_server_received_bytes_total"]),
		perClientRound(metrics[`psyche_server_pushed_bytes_total{feed="state",form="delta"}`]), perClientRound(metrics[`psyche_server_pushed_bytes_total{feed="state",form="whole"}`]),
		perClientRound(metrics[`psyche_server_pushed_bytes_total{feed="peers",form="delta"}`]), perClientRound(metrics[`psyche_server_pushed_bytes_total{feed="peers",form="whole"}`]))
	t.Logf("state %.0f KiB; pushes: %.0f deltas, %.0f whole; commits %.0f, mean %.2f ms",
		metrics[`psyche_server_run_state_bytes{run="test"}`]/1024,
		metrics[`psyche_server_pushes_total{feed="state",form="delta"}`], metrics[`psyche_server_pushes_total{feed="state",form="whole"}`],
		metrics["psyche_server_commit_seconds_count"], 1000*metrics["psyche_server_commit_seconds_sum"]/max(1, metrics["psyche_server_commit_seconds_count"]))
}

// phases contains the durations of a run's rounds.
type phases struct {
	train, witness []time.Duration
	last           string
}

// observe watches the run until it is finished.
func observe(t *testing.T, ctx context.Context, address string) (p phases) {
	t.Helper()
	watcher, err := tcp.Dial(ctx, tcp.Options{Addr: address, RunID: runID, Key: identity.FromSeed([identity.SeedSize]byte{9, 9, 9}), Observe: true})
	if err != nil {
		t.Error(err)
		return p
	}
	defer func() { _ = watcher.Close() }()
	var state coordinator.RunState
	var step uint32
	var since time.Time
	for {
		select {
		case <-ctx.Done():
			return phases{last: p.last}
		case u, ok := <-watcher.Updates():
			if !ok {
				t.Error(watcher.Err())
				return p
			}
			if u.State.RunState == state && u.State.Progress.Step == step {
				continue
			}
			switch state {
			case coordinator.RoundTrain:
				p.train = append(p.train, time.Since(since))
				if u.State.RunState != coordinator.RoundWitness { // RoundWitness took no time
					p.witness = append(p.witness, 0)
				}
			case coordinator.RoundWitness:
				p.witness = append(p.witness, time.Since(since))
			}
			state, step, since = u.State.RunState, u.State.Progress.Step, time.Now()
			p.last = fmt.Sprintf("%s of step %d", state, step)
			if state == coordinator.Finished {
				return p
			}
		}
	}
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

// metricsOf reads the numbers of /metrics.
func metricsOf(t *testing.T, web string) map[string]float64 {
	t.Helper()
	_, body := get(t, web, "/metrics")
	http.DefaultClient.CloseIdleConnections()
	metrics := map[string]float64{}
	lines := bufio.NewScanner(strings.NewReader(body))
	for lines.Scan() {
		if i := strings.LastIndexByte(lines.Text(), ' '); i > 0 {
			if value, err := strconv.ParseFloat(lines.Text()[i+1:], 64); err == nil {
				metrics[lines.Text()[:i]] = value
			}
		}
	}
	return metrics
}

// peakMemory returns the peak resident size of a process in bytes, or 0 if the system does not
// report it.
func peakMemory(pid int) int64 {
	content, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(content)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
			kib, _ := strconv.ParseInt(fields[1], 10, 64)
			return kib << 10
		}
	}
	return 0
}
