package archive_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/admin"
	"github.com/psyche-go/psyche/chain/archive"
	"github.com/psyche-go/psyche/chain/archive/fetch"
	"github.com/psyche-go/psyche/chain/event"
	"github.com/psyche-go/psyche/chain/localnet"
	"github.com/psyche-go/psyche/chain/program"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/solana"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/journal"
	"github.com/psyche-go/psyche/record/wire"
)

var programID = transaction.PublicKey{7}

// world is a chain with runs of one main authority.
type world struct {
	t     *testing.T
	o     solana.Options
	chain *admin.Chain
	op    *solana.Operator
	pool  *rpc.Pool
}

func newWorld(t *testing.T) *world {
	t.Helper()
	ledger := localnet.NewLedger(localnet.Config{Start: time.Now()})
	if err := ledger.SetProgram(programID, program.ELF); err != nil {
		t.Fatal(err)
	}
	server := localnet.NewServer(ledger, localnet.Options{Slot: 10 * time.Millisecond})
	web := httptest.NewServer(server.Endpoint())
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = server.Run(ctx) })
	address, err := rpc.ParseEndpoint(web.URL)
	if err != nil {
		t.Fatal(err)
	}
	w := &world{t: t, o: solana.Options{
		Endpoints: []rpc.Address{address}, Program: programID, Key: identity.FromSeed([identity.SeedSize]byte{1}), Observe: true,
		Pace: solana.Pace{Poll: 50 * time.Millisecond, Fetch: 20 * time.Millisecond, Status: 20 * time.Millisecond, Resend: 200 * time.Millisecond},
	}}
	if w.chain, err = admin.Open(w.o); err != nil {
		t.Fatal(err)
	}
	if w.op, err = solana.NewOperator(w.o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		w.chain.Close()
		w.op.Close()
		stop()
		running.Wait()
		web.CloseClientConnections()
		web.Close()
	})
	w.pool = w.op.Pool()
	w.ok(w.chain.Airdrop(t.Context(), w.chain.Payer(), 20*admin.LamportsPerSOL))
	return w
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// create begins a run, paused.
func (w *world) create(runID string) transaction.PublicKey {
	w.t.Helper()
	run, err := config.LoadState("../../record/config/testdata/server.toml")
	w.ok(err)
	run.RunID = runID
	main := coordinator.ClientID(w.chain.Payer())
	s, err := run.CoordinatorState(main)
	w.ok(err)
	plan, err := w.chain.PlanCreate(w.t.Context(), programID, runID, &coordinator.Genesis{
		RunID: runID, Host: main, MainAuthority: main, JoinAuthority: main, Paused: true, Config: s.Config, Model: s.Model,
	}, nil)
	w.ok(err)
	w.ok(w.chain.Create(w.t.Context(), plan))
	return plan.Run
}

// pause returns the instruction of a SetPaused action.
func (w *world) pause(run transaction.PublicKey, paused bool, nonce uint64) transaction.Instruction {
	return transaction.Program(programID).Act(run, w.chain.Payer(), nonce, wire.AppendAction(nil, coordinator.SetPaused{Paused: paused}))
}

// fetch archives a run and returns the file.
func (w *world) fetch(path string, run transaction.PublicKey) archive.Summary {
	w.t.Helper()
	a, err := archive.Open(path, archive.Header{Program: programID, Run: run})
	w.ok(err)
	for {
		time.Sleep(30 * time.Millisecond) // until it is confirmed
		_, err := fetch.Into(w.t.Context(), a, w.pool.Endpoints()[0], rpc.Confirmed)
		w.ok(err)
		account, err := w.chain.Summary(w.t.Context(), run, rpc.Confirmed)
		w.ok(err)
		if s := a.Summary(); account.Sequence == s.Sequence {
			if account.Head != s.Head {
				w.t.Fatalf("event %d: head %x, the account has %x", s.Sequence, s.Head, account.Head)
			}
			w.ok(a.Close())
			return s
		}
	}
}

// TestArchive archives two runs that share transactions, in several steps, and then again from the
// start.
func TestArchive(t *testing.T) {
	w := newWorld(t)
	one, two := w.create("one"), w.create("two")
	path := filepath.Join(t.TempDir(), "one")
	if s := w.fetch(path, one); s.Sequence != 1 || s.Main != w.chain.Payer() {
		t.Fatalf("after the genesis: %+v", s)
	}
	// One transaction changes both runs, the other run first.
	w.ok(w.op.Send(t.Context(), "resume both", 400_000, w.pause(two, false, 5), w.pause(one, false, 5)))
	for range 2 { // idle ticks are not archived
		salt := binary.LittleEndian.AppendUint64(nil, uint64(time.Now().UnixNano()))
		w.ok(w.op.Send(t.Context(), "tick both", 1_200_000, transaction.Program(programID).Tick(two, salt), transaction.Program(programID).Tick(one, nil)))
	}
	w.ok(w.op.Send(t.Context(), "pause", 400_000, w.pause(one, true, 6)))
	s := w.fetch(path, one)
	if s.Sequence < 3 {
		t.Fatalf("after the pause: %+v", s)
	}
	if other := w.fetch(filepath.Join(t.TempDir(), "two"), two); other.Sequence < 2 || other.Head == s.Head {
		t.Errorf("the other run: %+v", other)
	}
	steps := 0
	state, replayed, err := archive.Replay(path, func(step archive.Step, state *coordinator.State) error {
		if steps++; step.Event.Sequence != uint64(steps) || state.RunID != "one" || step.Signer != w.chain.Payer() {
			t.Errorf("step %d: %+v", steps, step)
		}
		return nil
	})
	if err != nil || replayed != s || uint64(steps) != s.Sequence {
		t.Fatalf("replay: %+v after %d steps, %v; want %+v", replayed, steps, err, s)
	}
	if state.RunID != "one" || !state.PendingPause && state.RunState != coordinator.Paused {
		t.Errorf("state: %s, %v", state.RunState, state.PendingPause)
	}
	if _, err := archive.Open(path, archive.Header{Program: programID, Run: two}); !errors.Is(err, archive.ErrArchive) {
		t.Errorf("open as a different run: %v", err)
	}
	if !archive.Is(path) || archive.Is(filepath.Join(t.TempDir(), "none")) {
		t.Error("archives are not distinguished from other files")
	}
	tampered(t, path)
}

// tampered changes every record of an archive, in a file whose own hashes are correct.
func tampered(t *testing.T, path string) {
	t.Helper()
	var all [][]byte
	file, err := os.Open(path)
	if err == nil {
		_, err = journal.Read(file, func(payload []byte) error {
			all = append(all, bytes.Clone(payload))
			return nil
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	refused := func(subject string, records [][]byte) {
		t.Helper()
		path := filepath.Join(t.TempDir(), "tampered")
		j, _, err := journal.Open(path, func([]byte) error { return nil })
		for _, record := range records {
			err = errors.Join(err, j.Append(record))
		}
		if err = errors.Join(err, j.Commit(), j.Close()); err != nil {
			t.Fatal(err)
		}
		if _, _, err := archive.Replay(path, nil); !errors.Is(err, archive.ErrArchive) {
			t.Errorf("%s: got %v; want error archive.ErrArchive", subject, err)
		}
	}
	refused("no record", nil)
	refused("a header alone", all[:1])
	for i := 1; i < len(all); i++ {
		at := func(byte int) [][]byte {
			changed := slices.Clone(all)
			changed[i] = bytes.Clone(all[i])
			changed[i][byte] ^= 1
			return changed
		}
		events := int(all[i][8])
		for e := range events {
			for _, field := range []int{8, 16, 24, 32, 64} { // sequence, slot, time, draw, head
				refused("a changed event", at(9+e*event.Size+field))
			}
		}
		refused("a changed signature", at(9+events*event.Size+2))
		refused("a changed instruction", at(len(all[i])-1))
		refused("a record cut off", append(slices.Clone(all[:i]), all[i][:len(all[i])/2]))
		if events > 0 && i < len(all)-1 {
			refused("a record left out", append(slices.Clone(all[:i]), all[i+1:]...))
		}
	}
}

// TestFreedRun archives a run whose account was freed and created again.
func TestFreedRun(t *testing.T) {
	w := newWorld(t)
	run := w.create("again")
	close := transaction.Program(programID).Act(run, w.chain.Payer(), 9, wire.AppendAction(nil, coordinator.Close{}))
	w.ok(w.op.Send(t.Context(), "close", 400_000, close))
	time.Sleep(50 * time.Millisecond) // until it is confirmed
	w.ok(w.chain.Free(t.Context(), programID, run, w.chain.Payer()))
	time.Sleep(50 * time.Millisecond) // until it is confirmed
	if again := w.create("again"); again != run {
		t.Fatalf("at %s, was at %s", again, run)
	}
	path := filepath.Join(t.TempDir(), "again")
	if s := w.fetch(path, run); s.Sequence != 1 {
		t.Errorf("the second run: %+v", s)
	}
	if _, s, err := archive.Replay(path, nil); err != nil || s.Sequence != 1 {
		t.Errorf("replay: %+v, %v", s, err)
	}
}
