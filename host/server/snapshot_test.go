package server_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/host/server/servertest"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/backend/backendtest"
	"github.com/psyche-go/psyche/record/journal"
)

// withSnapshot returns a folder with a journal and a snapshot that covers a part of it.
func withSnapshot(t *testing.T) (dir string, want []byte) {
	t.Helper()
	dir = t.TempDir()
	o := options(dir)
	o.SnapshotEvery = 10
	r := servertest.Start(t, o)
	a := dial(t, r.Address, 1)
	for range 12 {
		submit(t, a, coordinator.Join{})
		submit(t, a, coordinator.Withdraw{Client: coordinator.ClientID(backendtest.Key(1).ID())})
	}
	r.Stop()
	return dir, encoded(t, server.JournalPath(dir, runID))
}

// restart starts a server on dir. It returns its initial state and its log.
func restart(t *testing.T, dir string) (state []byte, log string, err error) {
	t.Helper()
	return restartRun(t, dir, backendtest.Genesis(runID, 3))
}

func restartRun(t *testing.T, dir string, genesis server.Genesis) (state []byte, log string, err error) {
	t.Helper()
	var text bytes.Buffer
	o := options(dir)
	o.Runs = []server.Genesis{genesis}
	o.Logger = slog.New(slog.NewTextHandler(&text, nil))
	o.OnState = func(s *coordinator.State) { state = s.AppendTo(nil) }
	ctx, cancel := context.WithTimeout(t.Context(), waitTimeout)
	defer cancel()
	o.Ready = func(net.Addr) { cancel() }
	err = server.Run(ctx, o)
	return state, text.String(), err
}

func TestStartFromSnapshot(t *testing.T) {
	dir, want := withSnapshot(t)
	state, log, err := restart(t, dir)
	if err != nil || !bytes.Equal(state, want) {
		t.Fatalf("wrong state, %v", err)
	}
	// 1 genesis, 24 actions and 2 digests. The second digest was written 10 records after the
	// first.
	if !strings.Contains(log, "records=27 replayed=") || strings.Contains(log, "replayed=27") || len(warnings(log, "snapshot=")) > 0 {
		t.Fatalf("the snapshot was not used:\n%s", log)
	}
}

func TestSnapshotThatIsOfNoUse(t *testing.T) {
	for name, change := range map[string]func(*testing.T, string){
		"damaged": func(t *testing.T, path string) {
			content := read(t, path)
			content[len(content)/2] ^= 1
			write(t, path, content)
		},
		"empty": func(t *testing.T, path string) { write(t, path, nil) },
		"of another run": func(t *testing.T, path string) {
			other, _ := withSnapshot(t)
			write(t, path, read(t, server.SnapshotPath(other, runID)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir, want := withSnapshot(t)
			change(t, server.SnapshotPath(dir, runID))
			state, log, err := restart(t, dir)
			if err != nil || !bytes.Equal(state, want) {
				t.Fatalf("wrong state, %v", err)
			}
			if len(warnings(log, "snapshot=")) != 1 || !strings.Contains(log, "replayed=27") {
				t.Fatalf("the log does not report it:\n%s", log)
			}
		})
	}
}

// TestJournalShorterThanItsSnapshot checks that the server does not start, because acknowledged
// actions are lost.
func TestJournalShorterThanItsSnapshot(t *testing.T) {
	dir, _ := withSnapshot(t)
	path := server.JournalPath(dir, runID)
	write(t, path, read(t, path)[:500])
	for _, name := range []string{"shorter", "gone"} {
		_, _, err := restart(t, dir)
		golden.Message(t, name, err)
		_ = os.Remove(path)
	}
}

// TestTailOfZeros checks that the server starts on a journal with zeros after its end, which a
// power failure may leave. It must not start if zeros replace entries that a snapshot covers.
func TestTailOfZeros(t *testing.T) {
	dir, want := withSnapshot(t)
	path := server.JournalPath(dir, runID)
	whole := read(t, path)
	write(t, path, append(bytes.Clone(whole), make([]byte, 4096)...))
	state, log, err := restart(t, dir)
	if err != nil || !bytes.Equal(state, want) || len(warnings(log, "bytes=4096")) != 1 {
		t.Fatalf("wrong state, %v\n%s", err, log)
	}
	var second int64
	records := 0
	if _, err := journal.Read(bytes.NewReader(whole), func(p []byte) error {
		if records++; records <= 2 {
			second += int64(len(p)) + 72
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	lost := bytes.Clone(whole)
	clear(lost[int64(len(journal.Magic))+second:])
	write(t, path, lost)
	_, _, err = restart(t, dir)
	golden.Message(t, "zeros in place of entries", err)
	if !bytes.Equal(read(t, path), lost) {
		t.Error("the journal was changed")
	}
}

// TestRepairOfAJournal damages the end of a journal, and then a part that a snapshot covers.
func TestRepairOfAJournal(t *testing.T) {
	dir, _ := withSnapshot(t)
	path := server.JournalPath(dir, runID)
	whole := read(t, path)
	if _, err := server.InspectJournal(dir, runID); !errors.Is(err, journal.ErrSound) {
		t.Fatal(err)
	}
	write(t, path, append(bytes.Clone(whole), bytes.Repeat([]byte{1}, 100)...))
	_, _, err := restart(t, dir)
	golden.Message(t, "a damaged end", err)
	found, err := server.InspectJournal(dir, runID)
	if err != nil || found.Size != 100 || found.Following != 0 {
		t.Fatalf("got %+v, %v; want nil error and found.Size == 100 and found.Following == 0", found, err)
	}
	if _, err := server.RepairJournal(dir, runID, found); err != nil {
		t.Fatal(err)
	}
	if _, _, err := restart(t, dir); err != nil {
		t.Fatal(err)
	}
	damaged := bytes.Clone(whole)
	damaged[700] ^= 1 // after the genesis
	write(t, path, damaged)
	_, err = server.InspectJournal(dir, runID)
	golden.Message(t, "a damaged beginning", err)
}

// TestDamageBehindTheSnapshot checks that the start of a server detects damage after the snapshot,
// and that a replay detects damage before it.
func TestDamageBehindTheSnapshot(t *testing.T) {
	dir, _ := withSnapshot(t)
	path := server.JournalPath(dir, runID)
	whole := read(t, path)
	damaged := bytes.Clone(whole)
	damaged[len(damaged)-50] ^= 1
	write(t, path, damaged)
	_, _, err := restart(t, dir)
	if !errors.Is(err, journal.ErrDamaged) {
		t.Fatalf("error %v", err)
	}
	golden.Message(t, "at the start", err)
	damaged = bytes.Clone(whole)
	damaged[300] ^= 1
	write(t, path, damaged)
	_, _, err = server.Replay(path, nil)
	if !errors.Is(err, journal.ErrDamaged) {
		t.Fatalf("error %v", err)
	}
	golden.Message(t, "in a replay", err)
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func write(t *testing.T, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// BenchmarkStart measures the start of a server on a journal of 4,000 records, with and without a
// snapshot.
func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	o := options(dir)
	o.SnapshotEvery, o.ActionsPerSecond, o.JoinsPerSecond = 1000, 1e6, 1e6
	ctx, cancel := context.WithCancel(b.Context())
	ready, done := make(chan string, 1), make(chan error, 1)
	o.Ready = func(a net.Addr) { ready <- a.String() }
	go func() { done <- server.Run(ctx, o) }()
	address := <-ready
	var working sync.WaitGroup
	for n := range byte(8) {
		working.Go(func() {
			c, err := tcp.Dial(ctx, tcp.Options{Addr: address, RunID: runID, Key: backendtest.Key(1 + n)})
			if err != nil {
				b.Error(err)
				return
			}
			defer func() { _ = c.Close() }()
			for range 250 {
				err := errors.Join(c.Submit(ctx, coordinator.Join{}), c.Submit(ctx, coordinator.Withdraw{Client: coordinator.ClientID(backendtest.Key(1 + n).ID())}))
				if err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	working.Wait()
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"snapshot", "journal"} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if name == "journal" {
					_ = os.Remove(server.SnapshotPath(dir, runID))
				}
				ctx, cancel := context.WithCancel(b.Context())
				o := options(dir)
				o.Ready = func(net.Addr) { cancel() }
				if err := server.Run(ctx, o); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
