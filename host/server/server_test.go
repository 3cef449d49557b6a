package server_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/host/server/servertest"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/backend/backendtest"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/journal"
)

const (
	runID       = "test"
	waitTimeout = 30 * time.Second
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDirVariable); dir != "" {
		runChild(dir)
	}
	goleak.VerifyTestMain(m)
}

// options returns the options of a server whose run needs three clients to begin.
func options(dir string) server.Options {
	return server.Options{
		Listen: "127.0.0.1:0", Runs: []server.Genesis{backendtest.Genesis(runID, 3)}, SaveStateDir: dir,
		WithdrawGrace: -1,
	}
}

// hostOf returns the key of the host whose files are in dir.
func hostOf(t *testing.T, dir string) string {
	t.Helper()
	key, err := identity.LoadKeyFile(filepath.Join(dir, server.HostKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	return key.ID().String()
}

// dial connects the n-th client.
func dial(t *testing.T, address string, n byte) *tcp.Client {
	t.Helper()
	c, err := tcp.Dial(context.Background(), tcp.Options{
		Addr: address, RunID: runID, Key: backendtest.Key(n), InitialInterval: 10 * time.Millisecond,
		MaxInterval: 100 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// await returns the first update for which done is true.
func await(t *testing.T, c *tcp.Client, subject string, done func(*coordinator.State) bool) backend.Update {
	t.Helper()
	timer := time.NewTimer(waitTimeout)
	defer timer.Stop()
	for {
		select {
		case u, ok := <-c.Updates():
			if !ok {
				t.Fatalf("updates were closed (%v) while waiting for %s", c.Err(), subject)
			}
			if done(u.State) {
				return u
			}
		case <-timer.C:
			t.Fatalf("no update with %s", subject)
		}
	}
}

func submit(t *testing.T, c *tcp.Client, a coordinator.Action) {
	t.Helper()
	if err := c.Submit(t.Context(), a); err != nil {
		t.Fatal(err)
	}
}

// retry submits an action until the connection is restored.
func retry(t *testing.T, c *tcp.Client, a coordinator.Action) {
	t.Helper()
	deadline := time.Now().Add(waitTimeout)
	for {
		err := c.Submit(t.Context(), a)
		if err == nil || errors.Is(err, coordinator.ErrDuplicate) {
			return
		}
		if !errors.Is(err, backend.ErrDisconnected) || time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(time.Millisecond) // the client reconnects in the meantime
	}
}

func encoded(t *testing.T, path string) []byte {
	t.Helper()
	log, _, err := server.Replay(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	return log.State.AppendTo(nil)
}

func TestRestartContinuesTheRun(t *testing.T) {
	dir := t.TempDir()
	first := servertest.Start(t, options(dir))
	a, b := dial(t, first.Address, 1), dial(t, first.Address, 2)
	submit(t, a, coordinator.Join{})
	submit(t, b, coordinator.Join{})
	before := await(t, a, "both", func(s *coordinator.State) bool { return len(s.Pending) == 2 }).State.AppendTo(nil)
	first.Stop()

	o := options(dir)
	o.Listen = first.Address
	second := servertest.Start(t, o)
	// Both clients reconnect automatically.
	retry(t, a, coordinator.Join{})
	after := await(t, a, "the same state", func(*coordinator.State) bool { return true }).State
	if !bytes.Equal(before, after.AppendTo(nil)) {
		t.Fatal("the state differs after the restart")
	}
	c := dial(t, second.Address, 3)
	submit(t, c, coordinator.Join{})
	await(t, b, "all three", func(s *coordinator.State) bool {
		return len(s.Pending) == 3 || s.RunState == coordinator.Warmup
	})
	second.Stop()

	joins := 0
	final, summary, err := server.Replay(server.JournalPath(dir, runID), func(r follow.Record, _ *coordinator.State) error {
		if _, ok := r.Action.Action.(coordinator.Join); ok && r.Kind == follow.KindAction {
			joins++
		}
		return nil
	})
	if err != nil || joins != 3 || summary.Torn != 0 {
		t.Fatalf("replay: %v, %d joins, %+v; want 3 joins", err, joins, summary)
	}
	if final.State.RunID != runID {
		t.Fatalf("run %q", final.State.RunID)
	}
}

// TestStartAfterATornTail cuts the journal inside its last record. It checks that the server starts
// with exactly the earlier records. TestTornTailIsCutAtEveryByte in package journal cuts at every byte.
func TestStartAfterATornTail(t *testing.T) {
	dir := t.TempDir()
	o := options(dir)
	r := servertest.Start(t, o)
	path := server.JournalPath(dir, runID)
	a, b := dial(t, r.Address, 1), dial(t, r.Address, 2)
	submit(t, a, coordinator.Join{})
	size := fileSize(t, path)
	stateBefore := encoded(t, path)
	submit(t, b, coordinator.Join{})
	r.Stop()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	end := int64(len(whole))
	for _, cut := range []int64{size + 1, (size + end) / 2, end - 1} {
		if err := os.WriteFile(path, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		var seen []byte
		o := options(dir)
		o.OnState = func(s *coordinator.State) { seen = s.AppendTo(nil) }
		servertest.Start(t, o).Stop()
		if !bytes.Equal(seen, stateBefore) {
			t.Fatalf("cut at %d of %d: wrong state", cut, end)
		}
		if got := fileSize(t, path); got != size {
			t.Fatalf("cut at %d: the file has %d bytes, want %d", cut, got, size)
		}
	}
}

func fileSize(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

func TestStartRefuses(t *testing.T) {
	saved := t.TempDir()
	servertest.Start(t, options(saved)).Stop()
	path := server.JournalPath(saved, runID)
	damaged := t.TempDir()
	for _, name := range []string{server.HostKeyFile, filepath.Base(path)} {
		content, err := os.ReadFile(filepath.Join(saved, name))
		if err != nil {
			t.Fatal(err)
		}
		if name != server.HostKeyFile {
			content[len(content)/2] ^= 1
		}
		if err := os.WriteFile(filepath.Join(damaged, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	badKey := t.TempDir()
	if err := os.WriteFile(filepath.Join(badKey, server.HostKeyFile), []byte("[1,2,3]"), 0o600); err != nil {
		t.Fatal(err)
	}
	busy := servertest.Start(t, options(""))
	tests := []struct {
		name   string
		change func(*server.Options)
	}{
		{"port in use", func(o *server.Options) { o.Listen = busy.Address }},
		{"bad address", func(o *server.Options) { o.Listen = "nonsense" }},
		{"another configuration", func(o *server.Options) {
			o.SaveStateDir, o.Runs = saved, []server.Genesis{backendtest.Genesis(runID, 4)}
		}},
		{"broken chain", func(o *server.Options) { o.SaveStateDir = damaged }},
		{"broken host key", func(o *server.Options) { o.SaveStateDir = badKey }},
		{"directory is a file", func(o *server.Options) { o.SaveStateDir = path }},
		{"genesis fails", func(o *server.Options) { o.Runs = []server.Genesis{backendtest.Genesis("", 3)} }},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o := options("")
			test.change(&o)
			ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
			defer cancel()
			golden.Message(t, "error", server.Run(ctx, o))
		})
	}
}

func TestJournalOfALivingServerIsLocked(t *testing.T) {
	dir := t.TempDir()
	servertest.Start(t, options(dir))
	err := server.Run(t.Context(), options(dir))
	if !errors.Is(err, journal.ErrLocked) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("error %v", err)
	}
}

func TestRenamedJournalNamesTheOtherRun(t *testing.T) {
	dir := t.TempDir()
	servertest.Start(t, options(dir)).Stop()
	if err := os.Rename(server.JournalPath(dir, runID), server.JournalPath(dir, "other")); err != nil {
		t.Fatal(err)
	}
	o := options(dir)
	o.Runs = []server.Genesis{backendtest.Genesis("other", 3)}
	err := server.Run(t.Context(), o)
	if !errors.Is(err, server.ErrOtherRun) {
		t.Fatalf("error %v", err)
	}
	golden.Message(t, "error", err)
}

// TestMembersHaveTheGraceAfterARestart restarts the server while the two clients of its run are
// away. Only the client that does not come back is withdrawn, and not before the restart grace
// period is over.
func TestMembersHaveTheGraceAfterARestart(t *testing.T) {
	dir := t.TempDir()
	first := servertest.Start(t, options(dir))
	a, b := dial(t, first.Address, 1), dial(t, first.Address, 2)
	submit(t, a, coordinator.Join{})
	submit(t, b, coordinator.Join{})
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Fatal(err)
	}
	first.Stop()

	o := options(dir)
	o.WithdrawGrace, o.RestartGrace = 100*time.Millisecond, 300*time.Millisecond
	second := servertest.Start(t, o)
	began := time.Now()
	back := dial(t, second.Address, 1)
	u := await(t, back, "the withdrawal", func(s *coordinator.State) bool { return len(s.Pending) == 1 })
	if got := identity.ID(u.State.Pending[0].ID); got != backendtest.Key(1).ID() {
		t.Fatalf("%s remains, want the returned client", got)
	}
	if took := time.Since(began); took < o.RestartGrace/2 {
		t.Fatalf("withdrawn after %v, but the grace period is %v", took, o.RestartGrace)
	}
}

func TestEventsAndLogs(t *testing.T) {
	var mu sync.Mutex
	kinds := map[server.EventKind]int{}
	var log bytes.Buffer
	o := options("")
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	o.OnEvent = func(e server.Event) {
		mu.Lock()
		defer mu.Unlock()
		kinds[e.Kind]++
		if e.Kind == server.EventRefused && !errors.Is(e.Code, coordinator.ErrWrongState) {
			t.Errorf("refused with %v", e.Code)
		}
	}
	r := servertest.Start(t, o)
	c := dial(t, r.Address, 1)
	submit(t, c, coordinator.Join{})
	if err := c.Submit(t.Context(), coordinator.Ready{}); !errors.Is(err, coordinator.ErrWrongState) {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	for _, kind := range []server.EventKind{server.EventConnected, server.EventAccepted, server.EventRefused, server.EventDisconnected} {
		if kinds[kind] != 1 {
			t.Errorf("%d events %q, want 1", kinds[kind], kind)
		}
	}
	for _, want := range []string{"action=join", "action=ready", coordinator.ErrWrongState.Error()} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not contain %q:\n%s", want, log.String())
		}
	}
}

// TestFullRun runs two epochs with 24 clients that have fake trainers. `make load` runs 256 clients.
func TestFullRun(t *testing.T) {
	const clients, steps = 24, uint32(10)
	began := time.Now()
	dir := t.TempDir()
	var final atomic.Pointer[coordinator.State]
	finished := make(chan struct{})
	o := server.Options{
		Listen: "127.0.0.1:0", SaveStateDir: dir,
		Runs: []server.Genesis{func(host coordinator.ClientID) (coordinator.State, error) {
			return coordinator.New(runID, host, coordinator.Config{
				WarmupTime: 600_000, CooldownTime: 600_000, RoundsPerEpoch: 8, MaxRoundTrainTime: 600_000, RoundWitnessTime: 50,
				WaitingForMembersExtraTime: 500, GlobalBatchSizeStart: 256, GlobalBatchSizeEnd: 256, TotalSteps: steps,
				InitMinClients: clients, MinClients: clients / 2,
			}, coordinator.Model{MaxSeqLen: 16, Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointDummy}})
		}},
	}
	o.OnState = func(s *coordinator.State) {
		if s.RunState == coordinator.Finished && final.Swap(s) == nil {
			close(finished)
		}
	}
	r := servertest.Start(t, o)
	var working sync.WaitGroup
	for n := range clients {
		c := dial(t, r.Address, byte(n+1))
		f := &fakeClient{backend: c, id: coordinator.ClientID(backendtest.Key(byte(n + 1)).ID())}
		working.Go(func() { f.run(t) })
	}
	timer := time.NewTimer(2 * waitTimeout)
	defer timer.Stop()
	select {
	case <-finished:
	case <-timer.C:
		t.Error("the run does not finish")
	}
	elapsed := time.Since(began)
	working.Wait()
	r.Stop()
	if t.Failed() {
		return
	}
	s := final.Load()
	if s.Progress.Step != steps+1 || s.Progress.DataIndex != uint64(steps)*256 || s.Model.Checkpoint.Kind != coordinator.CheckpointP2P {
		t.Fatalf("progress %+v, checkpoint %+v", s.Progress, s.Model.Checkpoint)
	}
	if replayed := encoded(t, server.JournalPath(dir, runID)); !bytes.Equal(replayed, s.AppendTo(nil)) {
		t.Fatal("the replay of the journal gives a different state")
	}
	t.Logf("%d clients, %d steps in %v, journal %d bytes", clients, steps, elapsed, fileSize(t, server.JournalPath(dir, runID)))
}

// TestCommitsAreEvents checks that an event reports a commit once it is on the disk, and that there
// are no events while nothing happens.
func TestCommitsAreEvents(t *testing.T) {
	var mu sync.Mutex
	var commits []server.Event
	o := options(t.TempDir())
	o.OnEvent = func(e server.Event) {
		mu.Lock()
		defer mu.Unlock()
		if e.Kind == server.EventCommitted {
			commits = append(commits, e)
		}
	}
	r := servertest.Start(t, o)
	c := dial(t, r.Address, 1)
	submit(t, c, coordinator.Join{})
	time.Sleep(100 * time.Millisecond) // nothing is due in this time
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	r.Stop()
	if len(commits) != 1 || commits[0].Took <= 0 || commits[0].RunState != coordinator.WaitingForMembers {
		t.Errorf("commits %+v, want one of WaitingForMembers with a duration", commits)
	}
}
