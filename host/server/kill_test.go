package server_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/backend/backendtest"
	"github.com/psyche-go/psyche/record/follow"
)

// With these variables, the test binary is a server process.
const (
	childDirVariable    = "PSYCHE_TEST_SERVER_DIR"
	childListenVariable = "PSYCHE_TEST_SERVER_LISTEN"
	childRunVariable    = "PSYCHE_TEST_SERVER_RUN"
)

// childRuns contains the runs that a server process can host, by the value of childRunVariable.
var childRuns = map[string]func(*server.Options){
	// A run that never begins, so that clients can only join and withdraw, without delays.
	"kill": func(o *server.Options) {
		o.Runs = []server.Genesis{backendtest.Genesis(runID, 200)}
		o.WithdrawGrace = -1
		o.ActionsPerSecond, o.JoinsPerSecond = 1e6, 1e6
		o.SnapshotEvery = 50
	},
	"load":  loadRun,
	"crowd": crowdRun,
}

// runChild is the main function of a server process. It prints the addresses for clients and for
// HTTP, if there is an HTTP server.
func runChild(dir string) {
	o := server.Options{Listen: os.Getenv(childListenVariable), SaveStateDir: dir}
	childRuns[os.Getenv(childRunVariable)](&o)
	web := make(chan string, 1)
	o.HTTPReady = func(a net.Addr) { web <- a.String() }
	o.Ready = func(a net.Addr) {
		if o.HTTPListen == "" {
			web <- ""
		}
		fmt.Println(a, <-web)
	}
	fmt.Fprintln(os.Stderr, server.Run(context.Background(), o))
	os.Exit(1)
}

// child is a server process.
type child struct {
	*exec.Cmd
	address, web string
}

// startChild starts a server process.
func startChild(t *testing.T, run, dir, listen string, environment ...string) child {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := child{Cmd: exec.Command(executable)}
	c.Env = append(os.Environ(), childDirVariable+"="+dir, childListenVariable+"="+listen, childRunVariable+"="+run)
	c.Env = append(c.Env, environment...)
	c.Stderr = os.Stderr
	output, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("server process: %v", err)
	}
	c.address, c.web, _ = strings.Cut(strings.TrimSpace(line), " ")
	return c
}

// end kills the process.
func (c child) end() {
	_ = c.Process.Kill()
	_ = c.Wait()
}

var kills = flag.Int("kills", 10, "how often TestKillLosesNothingAcknowledged kills the server")

// TestKillLosesNothingAcknowledged repeatedly kills a server process with SIGKILL while clients
// join and withdraw. It checks that every acknowledged action is in the journal exactly once.
func TestKillLosesNothingAcknowledged(t *testing.T) {
	const clients = 4
	dir := t.TempDir()
	host := startChild(t, "kill", dir, "127.0.0.1:0")
	defer func() { host.end() }()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	acknowledged := make([]int, clients)
	var working sync.WaitGroup
	for n := range clients {
		c := dial(t, host.address, byte(n+1))
		id := coordinator.ClientID(backendtest.Key(byte(n + 1)).ID())
		working.Go(func() { acknowledged[n] = joinAndWithdraw(ctx, t, c, id) })
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range *kills {
		time.Sleep(time.Duration(20+random.IntN(80)) * time.Millisecond) // a random time
		host.end()
		host = startChild(t, "kill", dir, host.address)
	}
	time.Sleep(100 * time.Millisecond) // some actions after the last kill
	cancel()
	working.Wait()
	host.end()

	applied := make(map[identity.ID]int)
	final, summary, err := server.Replay(server.JournalPath(dir, runID), func(r follow.Record, _ *coordinator.State) error {
		if r.Kind == follow.KindAction {
			applied[r.Action.From]++
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for n, count := range acknowledged {
		total += count
		// An action in flight at a kill or at the end may be applied without an acknowledgement.
		got := applied[backendtest.Key(byte(n+1)).ID()]
		if got < count || got > count+*kills+1 {
			t.Errorf("client %d: %d acknowledged, %d applied", n+1, count, got)
		}
		if count == 0 {
			t.Errorf("client %d: nothing was acknowledged", n+1)
		}
	}
	// A restarted server has the state of a replay of the whole journal.
	if state, log, err := restartRun(t, dir, backendtest.Genesis(runID, 200)); err != nil || !bytes.Equal(state, final.State.AppendTo(nil)) {
		t.Errorf("replay and restart differ (%v):\n%s", err, log)
	}
	t.Logf("%d kills, %d actions acknowledged, %d records", *kills, total, summary.Entries)
}

// joinAndWithdraw joins and withdraws until ctx ends. It returns the number of acknowledged
// actions.
func joinAndWithdraw(ctx context.Context, t *testing.T, c backendtest.Backend, id coordinator.ClientID) int {
	acknowledged := 0
	for ctx.Err() == nil {
		for _, a := range []coordinator.Action{coordinator.Join{}, coordinator.Withdraw{Client: id}} {
			err := c.Submit(ctx, a)
			switch {
			case err == nil:
				acknowledged++
			case errors.Is(err, backend.ErrDisconnected):
				time.Sleep(time.Millisecond) // the client reconnects in the meantime
			case errors.Is(err, coordinator.ErrDuplicate), errors.Is(err, coordinator.ErrNotMember), ctx.Err() != nil:
				// The server had applied the action before it was killed.
			default:
				t.Error(err)
				return acknowledged
			}
		}
	}
	return acknowledged
}
