package server_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/server"
	"github.com/psyche-go/psyche/host/server/servertest"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/backend/backendtest"
	"github.com/psyche-go/psyche/record/follow"
)

// by returns a genesis whose main authority is the n-th key.
func by(n byte, genesis server.Genesis) server.Genesis {
	return func(host coordinator.ClientID) (coordinator.State, error) {
		s, err := genesis(host)
		s.Authority.Main = coordinator.ClientID(backendtest.Key(n).ID())
		return s, err
	}
}

// create begins a run with the n-th key.
func create(address, id string, n byte, genesis server.Genesis) error {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	defer cancel()
	_, err := tcp.Create(ctx, tcp.Options{Addr: address, RunID: id, Key: backendtest.Key(n)}, genesis)
	return err
}

// dialRun connects the n-th client to a run.
func dialRun(t *testing.T, address, id string, n byte) *tcp.Client {
	t.Helper()
	c, err := tcp.Dial(context.Background(), tcp.Options{Addr: address, RunID: id, Key: backendtest.Key(n), InitialInterval: 10 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestRunsAreApart checks that one key can take part in two runs of a server. One of them was begun
// over the network. The server then restarts without options for these runs, and both continue.
func TestRunsAreApart(t *testing.T) {
	dir := t.TempDir()
	o := options(dir)
	o.Create.Keys = []identity.ID{backendtest.Key(9).ID()}
	first := servertest.Start(t, o)
	if err := create(first.Address, "second/run", 9, by(9, backendtest.Genesis("second/run", 3))); err != nil {
		t.Fatal(err)
	}
	joined := func(n int) func(*coordinator.State) bool {
		return func(s *coordinator.State) bool { return len(s.Pending) == n }
	}
	a, b := dialRun(t, first.Address, runID, 1), dialRun(t, first.Address, "second/run", 1)
	submit(t, a, coordinator.Join{})
	await(t, a, "one", joined(1))
	await(t, b, "nobody", joined(0))
	submit(t, b, coordinator.Join{})
	c := dialRun(t, first.Address, "second/run", 2)
	submit(t, c, coordinator.Join{})
	await(t, b, "both", joined(2))
	first.Stop()

	o = options(dir)
	o.Listen, o.Runs = first.Address, nil
	second := servertest.Start(t, o)
	await(t, a, "one", joined(1))
	await(t, b, "both", joined(2))
	d := dialRun(t, second.Address, "second/run", 3)
	submit(t, d, coordinator.Join{})
	await(t, c, "three", func(s *coordinator.State) bool { return len(s.Pending) == 3 || s.RunState == coordinator.Warmup })
	second.Stop()
	kinds := []follow.Kind{}
	_, _, err := server.Replay(server.JournalPath(dir, "second/run"), func(r follow.Record, _ *coordinator.State) error {
		kinds = append(kinds, r.Kind)
		return nil
	})
	if err != nil || len(kinds) < 4 || kinds[0] != follow.KindGenesis || kinds[1] == follow.KindGenesis {
		t.Fatalf("records %v, %v", kinds, err)
	}
}

func TestCreateIsRefused(t *testing.T) {
	dir := t.TempDir()
	o := options(dir)
	o.Create, o.MaxRuns = server.CreatePolicy{Keys: []identity.ID{backendtest.Key(9).ID()}}, 2
	r := servertest.Start(t, o)
	tests := []struct {
		name, id string
		key      byte
		genesis  server.Genesis
	}{
		{"by a stranger", "new", 8, backendtest.Genesis("new", 3)},
		{"a run that is there", runID, 9, backendtest.Genesis(runID, 3)},
		{"another run than announced", "new", 9, by(9, backendtest.Genesis("other", 3))},
		{"for another host", "new", 9, func(coordinator.ClientID) (coordinator.State, error) {
			return by(9, backendtest.Genesis("new", 3))(coordinator.ClientID{1})
		}},
		{"of another authority", "new", 9, backendtest.Genesis("new", 3)},
		{"a run that is under way", "new", 9, func(host coordinator.ClientID) (coordinator.State, error) {
			s, err := backendtest.Genesis("new", 3)(host)
			s.Authority.Main = coordinator.ClientID(backendtest.Key(9).ID())
			s.HostNonce = 7
			return s, err
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			err := create(r.Address, test.id, test.key, test.genesis)
			if !errors.Is(err, tcp.ErrRefused) {
				t.Fatalf("error %v, want ErrRefused", err)
			}
			golden.Message(t, "error", err, hostOf(t, dir), "HOST")
		})
	}
	if err := create(r.Address, "new", 9, by(9, backendtest.Genesis("new", 3))); err != nil {
		t.Fatal(err)
	}
	err := create(r.Address, "one more", 9, by(9, backendtest.Genesis("one more", 3)))
	if !errors.Is(err, tcp.ErrRefused) {
		t.Fatalf("error %v", err)
	}
	golden.Message(t, "one more", err)
	_, err = tcp.Dial(t.Context(), tcp.Options{Addr: r.Address, RunID: "nowhere", Key: backendtest.Key(1)})
	if !errors.Is(err, backend.ErrWrongRun) {
		t.Fatalf("error %v", err)
	}
	golden.Message(t, "an unknown run", err)
}

// TestClosedRunsMakeRoom checks that closing a run of a full server makes room for a new run.
func TestClosedRunsMakeRoom(t *testing.T) {
	o := options(t.TempDir())
	o.Create, o.MaxRuns = server.CreatePolicy{Anyone: true}, 2
	r := servertest.Start(t, o)
	if err := create(r.Address, "first", 9, by(9, backendtest.Genesis("first", 3))); err != nil {
		t.Fatal(err)
	}
	main := dialRun(t, r.Address, "first", 9)
	for _, action := range []coordinator.Action{coordinator.SetPaused{Paused: true}, coordinator.Close{}} {
		err := create(r.Address, "second", 9, by(9, backendtest.Genesis("second", 3)))
		if !errors.Is(err, tcp.ErrRefused) {
			t.Fatalf("before %T: %v", action, err)
		}
		golden.Message(t, "a second run", err)
		submit(t, main, action)
	}
	await(t, main, "the end", func(s *coordinator.State) bool { return s.Closed })
	if err := create(r.Address, "second", 9, by(9, backendtest.Genesis("second", 3))); err != nil {
		t.Fatal(err)
	}
	err := create(r.Address, "first", 9, by(9, backendtest.Genesis("first", 3)))
	if !errors.Is(err, tcp.ErrRefused) {
		t.Errorf("a closed run was begun a second time: %v", err)
	}
	golden.Message(t, "a closed run", err)
}

// TestObserverNeedsNoSlotOfItsKey checks that a client can observe a run with the key of a
// connected participant.
func TestObserverNeedsNoSlotOfItsKey(t *testing.T) {
	o := options("")
	o.WithdrawGrace = 50 * time.Millisecond
	r := servertest.Start(t, o)
	a := dial(t, r.Address, 1)
	submit(t, a, coordinator.Join{})
	o2 := tcp.Options{Addr: r.Address, RunID: runID, Key: backendtest.Key(1), Observe: true}
	watcher, err := tcp.Dial(t.Context(), o2)
	if err != nil {
		t.Fatal(err)
	}
	await(t, watcher, "the participant", func(s *coordinator.State) bool { return len(s.Pending) == 1 })
	// The observer does not count as the participant's connection, so the server withdraws the key.
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	await(t, watcher, "nobody", func(s *coordinator.State) bool { return len(s.Pending) == 0 })
	if err := watcher.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestReadLog copies a journal over the network while it grows.
func TestReadLog(t *testing.T) {
	dir := t.TempDir()
	r := servertest.Start(t, options(dir))
	a := dial(t, r.Address, 1)
	for range 3 {
		submit(t, a, coordinator.Join{})
		submit(t, a, coordinator.Withdraw{Client: coordinator.ClientID(backendtest.Key(1).ID())})
	}
	var log bytes.Buffer
	var here, whole uint64
	o := tcp.Options{Addr: r.Address, RunID: runID, Key: backendtest.Key(2)}
	if err := tcp.ReadLog(t.Context(), o, &log, func(done, all uint64) { here, whole = done, all }); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(server.JournalPath(dir, runID))
	if err != nil || !bytes.Equal(want, log.Bytes()) {
		t.Fatalf("%d bytes, the journal has %d (%v)", log.Len(), len(want), err)
	}
	if here != whole || whole != uint64(len(want)) {
		t.Errorf("progress %d of %d bytes, the journal has %d", here, whole, len(want))
	}
	if err := tcp.ReadLogFrom(t.Context(), o, uint64(log.Len()), &log); err != nil || log.Len() != len(want) {
		t.Fatalf("new part of a log that has not grown: %v, %d bytes", err, log.Len()-len(want))
	}
	submit(t, a, coordinator.Join{})
	if err := tcp.ReadLogFrom(t.Context(), o, uint64(log.Len()), &log); err != nil {
		t.Fatal(err)
	}
	if want, err = os.ReadFile(server.JournalPath(dir, runID)); err != nil || !bytes.Equal(want, log.Bytes()) {
		t.Fatalf("after it grew: %d bytes, the journal has %d (%v)", log.Len(), len(want), err)
	}
	if err := tcp.ReadLogFrom(t.Context(), o, 1<<40, io.Discard); !errors.Is(err, tcp.ErrNoLog) {
		t.Fatalf("after its end: %v, want ErrNoLog", err)
	}
	memory := servertest.Start(t, options(""))
	o.Addr = memory.Address
	if err := tcp.ReadLog(t.Context(), o, io.Discard, func(_, _ uint64) {}); !errors.Is(err, tcp.ErrNoLog) {
		t.Fatalf("error %v, want ErrNoLog", err)
	}
}

// sized is a model for a test.
type sized struct{ *bytes.Reader }

// TestReadModel reads the initial model of a run from a server.
func TestReadModel(t *testing.T) {
	want := bytes.Repeat([]byte("model"), 3*frame.MaxLogPart/5+7)
	o := options("")
	o.Models = map[string]server.Model{runID: sized{bytes.NewReader(want)}}
	o.Recorded = func(_ context.Context, run string, digest [32]byte) server.Model {
		if run != runID || digest != [32]byte{7} {
			return nil
		}
		return sized{bytes.NewReader([]byte("recorded"))}
	}
	r := servertest.Start(t, o)
	var got bytes.Buffer
	reach := tcp.Options{Addr: r.Address, RunID: runID, Key: backendtest.Key(2)}
	var progress []uint64
	err := tcp.ReadModel(t.Context(), reach, [32]byte{}, uint64(len(want)), &got, func(done, all uint64) { progress = append(progress, done, all) })
	if err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Fatalf("%d of %d bytes, %v", got.Len(), len(want), err)
	}
	if len(progress) != 8 || progress[6] != uint64(len(want)) || progress[7] != uint64(len(want)) {
		t.Errorf("the final progress is %d", progress)
	}
	nothing := func(uint64, uint64) {}
	err = tcp.ReadModel(t.Context(), reach, [32]byte{}, uint64(len(want)-1), io.Discard, nothing)
	golden.Message(t, "a model that is larger than the client takes", err)
	got.Reset()
	if err = tcp.ReadModel(t.Context(), reach, [32]byte{7}, 1<<20, &got, nothing); err != nil || got.String() != "recorded" {
		t.Errorf("a recorded model: %q, %v", got.Bytes(), err)
	}
	if err := tcp.ReadModel(t.Context(), reach, [32]byte{8}, 1<<20, io.Discard, nothing); !errors.Is(err, tcp.ErrNoModel) {
		t.Errorf("a recorded model that the server does not have: %v", err)
	}
	reach.Addr = servertest.Start(t, options("")).Address
	if err := tcp.ReadModel(t.Context(), reach, [32]byte{}, 1<<20, io.Discard, nothing); !errors.Is(err, tcp.ErrNoModel) {
		t.Errorf("from a server without a model: %v", err)
	}
}

// cutting listens in front of a server and cuts each connection after a number of bytes from the
// server.
func cutting(t *testing.T, server string, after int64) (address string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var passing sync.WaitGroup
	t.Cleanup(func() { _ = listener.Close(); passing.Wait() })
	passing.Go(func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			passing.Go(func() {
				defer func() { _ = near.Close() }()
				far, err := net.Dial("tcp", server)
				if err != nil {
					return
				}
				passing.Go(func() { _, _ = io.Copy(far, near) })
				_, _ = io.CopyN(near, far, after)
				_ = far.Close()
			})
		}
	})
	return listener.Addr().String()
}

// TestReadModelOverABadLine checks that a client receives a model although each connection breaks
// before its second part arrives.
func TestReadModelOverABadLine(t *testing.T) {
	want := bytes.Repeat([]byte("model"), 3*frame.MaxLogPart/5+7)
	o := options("")
	o.Models = map[string]server.Model{runID: sized{bytes.NewReader(want)}}
	r := servertest.Start(t, o)
	reach := tcp.Options{Addr: cutting(t, r.Address, frame.MaxLogPart*3/2), RunID: runID, Key: backendtest.Key(2)}
	var got bytes.Buffer
	nothing := func(uint64, uint64) {}
	if err := tcp.ReadModel(t.Context(), reach, [32]byte{}, 1<<20, &got, nothing); err != nil || !bytes.Equal(got.Bytes(), want) {
		t.Fatalf("%d of %d bytes, %v", got.Len(), len(want), err)
	}
	reach.Addr = cutting(t, r.Address, frame.MaxLogPart/2)
	if err := tcp.ReadModel(t.Context(), reach, [32]byte{}, 1<<20, io.Discard, nothing); err == nil {
		t.Error("reading does not end although no part arrives")
	}
}

func TestStartRefusesFoldersThatAreNotRight(t *testing.T) {
	dir := t.TempDir()
	servertest.Start(t, options(dir)).Stop()
	host := hostOf(t, dir)
	run := func() error {
		o := options(dir)
		o.Runs = nil
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		return server.Run(ctx, o)
	}
	odd := filepath.Join(dir, "a b.journal")
	if err := os.WriteFile(odd, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := run(); err == nil || !strings.Contains(err.Error(), odd) {
		t.Errorf("unknown name: %v", err)
	}
	if err := os.Remove(odd); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, server.HostKeyFile)); err != nil {
		t.Fatal(err)
	}
	if err := run(); !errors.Is(err, server.ErrNoHostKey) {
		t.Errorf("without a key: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, server.HostKeyFile)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the server made a key before it refused: %v", err)
	}
	other := identity.FromSeed([identity.SeedSize]byte{77})
	if err := identity.SaveKeyFile(filepath.Join(dir, server.HostKeyFile), other); err != nil {
		t.Fatal(err)
	}
	golden.Message(t, "another key", run(), host, "HOST")
}
