package server_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/backend"
	"github.com/psyche-go/psyche/backend/backendtest"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/server"
)

// With these variables the test binary is a server instead of a test.
const (
	childDirVariable    = "PSYCHE_TEST_SERVER_DIR"
	childListenVariable = "PSYCHE_TEST_SERVER_LISTEN"
)

// runChild is the main function of a server process.
func runChild(dir string) {
	o := options(dir)
	o.Listen = os.Getenv(childListenVariable)
	o.Runs = []server.Genesis{backendtest.Genesis(runID, 200)} // never begins: joins and withdrawals only
	o.Ready = func(a net.Addr) { fmt.Println(a) }
	fmt.Fprintln(os.Stderr, server.Run(context.Background(), o))
	os.Exit(1)
}

// startChild starts a server process and returns its address.
func startChild(t *testing.T, dir, listen string) (*exec.Cmd, string) {
	t.Helper()
	executable, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(executable)
	child.Env = append(os.Environ(), childDirVariable+"="+dir, childListenVariable+"="+listen)
	child.Stderr = os.Stderr
	output, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		t.Fatalf("server process: %v", err)
	}
	return child, strings.TrimSpace(line)
}

// TestKillLosesNothingAcknowledged kills a server process with SIGKILL again and again while
// clients join and withdraw, and counts: every acknowledged action is in the journal exactly
// once.
func TestKillLosesNothingAcknowledged(t *testing.T) {
	const kills, clients = 10, 4
	dir := t.TempDir()
	child, address := startChild(t, dir, "127.0.0.1:0")
	defer func() { _ = child.Process.Kill(); _ = child.Wait() }()

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	acknowledged := make([]int, clients)
	var working sync.WaitGroup
	for n := range clients {
		c := dial(t, address, byte(n+1))
		id := coordinator.ClientID(backendtest.Key(byte(n + 1)).ID())
		working.Go(func() { acknowledged[n] = joinAndWithdraw(ctx, t, c, id) })
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range kills {
		time.Sleep(time.Duration(20+random.IntN(80)) * time.Millisecond) // any moment will do
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait()
		child, _ = startChild(t, dir, address)
	}
	time.Sleep(100 * time.Millisecond) // some actions after the last kill
	cancel()
	working.Wait()
	if err := child.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = child.Wait()

	applied := make(map[identity.ID]int)
	_, summary, err := server.Replay(server.JournalPath(dir, runID), func(r server.Record, _ *coordinator.State) error {
		if r.Kind == server.RecordAction {
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
		// An action in flight at a kill, or at the end, may be applied and not acknowledged.
		got := applied[backendtest.Key(byte(n+1)).ID()]
		if got < count || got > count+kills+1 {
			t.Errorf("client %d: %d acknowledged, %d applied", n+1, count, got)
		}
		if count == 0 {
			t.Errorf("client %d: nothing was acknowledged", n+1)
		}
	}
	t.Logf("%d kills, %d actions acknowledged, %d records", kills, total, summary.Entries)
}

// joinAndWithdraw does so until ctx ends and returns how many actions were acknowledged.
func joinAndWithdraw(ctx context.Context, t *testing.T, c backendtest.Backend, id coordinator.ClientID) int {
	acknowledged := 0
	for ctx.Err() == nil {
		for _, a := range []coordinator.Action{coordinator.Join{}, coordinator.Withdraw{Client: id}} {
			err := c.Submit(ctx, a)
			switch {
			case err == nil:
				acknowledged++
			case errors.Is(err, backend.ErrDisconnected):
				time.Sleep(time.Millisecond) // the client reconnects meanwhile
			case errors.Is(err, coordinator.ErrDuplicate), errors.Is(err, coordinator.ErrNotMember), ctx.Err() != nil:
				// The copy before the kill was applied.
			default:
				t.Error(err)
				return acknowledged
			}
		}
	}
	return acknowledged
}
