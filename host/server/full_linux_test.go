package server_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

const otherRun = "other"

func init() { childRuns["full"] = fullRun }

// fullRun is a run of a server process that can write files of at most 16 KiB. This simulates a
// disk that is full for one run only.
func fullRun(o *server.Options) {
	signal.Ignore(syscall.SIGXFSZ)
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_FSIZE, &limit)
	if limit.Cur = 16 << 10; err == nil {
		err = unix.Setrlimit(unix.RLIMIT_FSIZE, &limit)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	o.Runs = []server.Genesis{backendtest.Genesis(runID, 200), backendtest.Genesis(otherRun, 200)}
	o.WithdrawGrace = -1
	o.ActionsPerSecond, o.JoinsPerSecond = 1e6, 1e6
	o.HTTPListen = "127.0.0.1:0"
}

// TestFullDiskHoldsUpOneRun simulates a full disk for one run. It checks that the run waits and
// continues when there is room, and that a second run is not delayed.
func TestFullDiskHoldsUpOneRun(t *testing.T) {
	dir := t.TempDir()
	host := startChild(t, "full", dir, "127.0.0.1:0")
	defer func() { host.end() }()
	full := dial(t, host.address, 1)
	id := coordinator.ClientID(backendtest.Key(1).ID())
	waiting, accepted := make(chan error, 1), 0
	next := func() coordinator.Action {
		if accepted%2 == 0 {
			return coordinator.Join{}
		}
		return coordinator.Withdraw{Client: id}
	}
	for held := false; !held; {
		go func() { waiting <- full.Submit(context.WithoutCancel(t.Context()), next()) }()
		select {
		case err := <-waiting:
			if err != nil {
				t.Fatalf("after %d actions: %v", accepted, err)
			}
			accepted++
		case <-time.After(2 * time.Second):
			held = true
		}
	}
	golden.Message(t, "/healthz", errors.New(strings.TrimSpace(health(t, host.web))))
	other, err := tcp.Dial(t.Context(), tcp.Options{Addr: host.address, RunID: otherRun, Key: backendtest.Key(2)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	if err := other.Submit(t.Context(), coordinator.Join{}); err != nil {
		t.Fatalf("the second run: %v", err)
	}
	var room unix.Rlimit // the largest limit that this process may set
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &room); err != nil {
		t.Fatal(err)
	}
	if err := unix.Prlimit(host.Process.Pid, unix.RLIMIT_FSIZE, &room, nil); err != nil {
		t.Fatal(err)
	}
	if err := <-waiting; err != nil {
		t.Fatalf("the waiting action: %v", err)
	}
	if health := health(t, host.web); health != "ok\n" {
		t.Errorf("/healthz answers %q", health)
	}
	host.end()
	_, summary, err := server.Replay(server.JournalPath(dir, runID), nil)
	if err != nil || summary.Entries != accepted+2 {
		t.Errorf("the journal has %d entries, %v; want the first state and %d actions", summary.Entries, err, accepted+1)
	}
}

func health(t *testing.T, web string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://%s/healthz", web), nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections()
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
