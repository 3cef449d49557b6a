package server

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/host/tcp"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
)

// The size of TestJoiningLate. With 10000 rounds and 32 members, joining takes 0.3 s and 95 KiB,
// and the journal has 288 MiB.
var (
	joinRounds  = flag.Int("join.rounds", 100, "rounds before TestJoiningLate joins")
	joinMembers = flag.Int("join.members", 8, "members of the run that TestJoiningLate joins")
)

const joinRun = "late"

// history creates the folder of a server whose run has had many rounds, with members that certify
// their epochs.
type history struct {
	t     *testing.T
	keys  []identity.Key
	store store
	certs certs
	now   uint64
	nonce uint64
}

func joinKey(n int) identity.Key {
	return identity.FromSeed([identity.SeedSize]byte{byte(n), byte(n >> 8), 44})
}

func makeHistory(t *testing.T, dir string, members, rounds int) *history {
	t.Helper()
	h := &history{t: t, now: 1_700_000_000_000, nonce: 1}
	for n := range members {
		h.keys = append(h.keys, joinKey(n))
	}
	key, err := HostKey(dir, rngReader{})
	if err != nil {
		t.Fatal(err)
	}
	state, err := coordinator.New(joinRun, coordinator.ClientID(key.ID()), coordinator.Config{
		WarmupTime: 30_000, CooldownTime: 30_000, RoundsPerEpoch: 25, MaxRoundTrainTime: 30_000, RoundWitnessTime: 1000,
		WaitingForMembersExtraTime: 1000, GlobalBatchSizeStart: 512, GlobalBatchSizeEnd: 512, TotalSteps: 1 << 20,
		InitMinClients: uint16(members), MinClients: 1,
	}, coordinator.Model{MaxSeqLen: 512, Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointDummy}})
	if err != nil {
		t.Fatal(err)
	}
	draws := makeDraws([32]byte{7}, 1<<20)
	state.DrawCommitment = draws.chain.Commitment()
	genesis, err := follow.NewGenesis(key, [32]byte{1}, &state)
	if err != nil {
		t.Fatal(err)
	}
	if h.store, err = openStore(dir, joinRun, &genesis, draws, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	h.certs = certs{run: genesis.Run(), path: certificatesPath(dir, joinRun)}
	for _, k := range h.keys {
		h.act(k, coordinator.Join{})
	}
	h.live(rounds)
	if err := h.store.commit(); err != nil {
		t.Fatal(err)
	}
	return h
}

type rngReader struct{}

func (rngReader) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = byte(i + 3)
	}
	return len(b), nil
}

// act applies and records an action without verifying it, because it was created here.
func (h *history) act(key identity.Key, a coordinator.Action) {
	h.nonce++
	raw := wire.SignAction(key, h.certs.run, h.nonce, a)
	if err := h.store.log.State.Apply(coordinator.ClientID(key.ID()), h.nonce, a); err != nil {
		h.t.Fatalf("%T: %v", a, err)
	}
	h.record(follow.Record{Kind: follow.KindAction, Action: wire.SignedAction{Raw: raw}})
}

func (h *history) record(r follow.Record) {
	record := core.Record{Payload: r.AppendTo(nil)}
	h.store.log.Note(record.Payload)
	if h.store.log.Epoch().Index == h.store.log.Head().Index {
		record.Began = h.store.log.State.AppendTo(nil)
	}
	if err := h.store.append(record); err != nil {
		h.t.Fatal(err)
	}
	h.store.fresh = nil
	if h.store.journal.End()-h.store.journal.Size() > 1<<20 {
		if err := h.store.commit(); err != nil {
			h.t.Fatal(err)
		}
	}
}

// live plays the given number of rounds.
func (h *history) live(rounds int) {
	s := &h.store.log.State
	for s.Progress.Step <= uint32(rounds) {
		switch s.RunState {
		case coordinator.Warmup:
			for _, k := range h.keys {
				h.act(k, coordinator.Ready{Epoch: s.Progress.Epoch})
			}
		case coordinator.RoundTrain:
			h.witness()
		case coordinator.Cooldown:
			for _, k := range h.keys {
				h.act(k, coordinator.ReportCheckpoint{Step: s.Progress.Step, Digest: [32]byte{byte(s.Progress.Step), 1}})
			}
		}
		h.now += 1500
		before := h.store.log.Epoch().Index
		committed := s.DrawCommitment
		draw, _, _ := h.store.draws.chain.Opening(committed)
		if s.Tick(h.now, draw) {
			if s.DrawCommitment == committed {
				draw = [32]byte{}
			}
			h.record(follow.Record{Kind: follow.KindTick, Now: h.now, Draw: draw})
		}
		if e := h.store.log.Epoch(); e.Index != before {
			h.certify(e)
		}
	}
}

// witness makes all elected members prove that they hold a result.
func (h *history) witness() {
	s := &h.store.log.State
	round := s.CurrentRound()
	proof := coordinator.WitnessRound{Step: round.Step, CommitmentsRoot: [32]byte{byte(round.Step)}, Replica: [32]byte{byte(round.Step), 2}}
	for i := range round.Members {
		proof.Participants.Add(round.Seed, round.Members[i][:])
		proof.Commitments.Add(round.Seed, []byte{byte(i), byte(round.Step)})
	}
	for _, member := range round.ElectedWitnesses(s.Config) {
		h.act(h.keyOf(round.Members[member]), proof)
	}
}

func (h *history) keyOf(id coordinator.ClientID) identity.Key {
	for _, k := range h.keys {
		if k.ID() == identity.ID(id) {
			return k
		}
	}
	h.t.Fatal("an unknown member")
	return identity.Key{}
}

func (h *history) certify(e follow.Epoch) {
	h.certs.began(e, h.store.begunAt, h.store.begunState)
	for _, k := range h.keys {
		if _, err := h.certs.sign(k.ID(), e.Index, e.Sign(k, h.certs.run)); err != nil {
			h.t.Fatal(err)
		}
	}
	if err := h.store.commit(); err != nil {
		h.t.Fatal(err)
	}
	if err := h.certs.save(); err != nil {
		h.t.Fatal(err)
	}
}

// TestJoiningLate joins an old run with certificates, and without certificates by a replay of the
// whole log.
func TestJoiningLate(t *testing.T) {
	dir := t.TempDir()
	h := makeHistory(t, dir, *joinMembers, *joinRounds)
	want, index := h.store.log.State.Hash(), h.store.log.Head().Index
	journal := h.store.journal.Size()
	if err := h.store.close(); err != nil {
		t.Fatal(err)
	}
	links, _ := h.certs.way()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	ready := make(chan net.Addr, 1)
	go func() {
		// The clock stands still and no member is missed, so the run does not change.
		ended <- Run(ctx, Options{Listen: "127.0.0.1:0", SaveStateDir: dir, WithdrawGrace: -1, SnapshotEvery: 1 << 30,
			Now: func() uint64 { return h.now }, Random: io.Reader(rngReader{}), Limits: Limits{LogBytesPerSecond: 1 << 30},
			Hooks: Hooks{Ready: func(a net.Addr) { ready <- a }}})
	}()
	var address net.Addr
	select {
	case address = <-ready:
	case err := <-ended:
		t.Fatal(err)
	}
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	join := func() (time.Duration, uint64) {
		began := time.Now()
		c, err := tcp.Dial(ctx, tcp.Options{Addr: address.String(), RunID: joinRun, Key: joinKey(9999)})
		if err != nil {
			t.Fatal(err)
		}
		u := <-c.Updates()
		took := time.Since(began)
		_, received := c.Bytes()
		if u.State == nil || u.State.Hash() != want {
			t.Fatalf("the state differs from the server's state: %v", c.Err())
		}
		_ = c.Close()
		return took, received
	}
	took, received := join()
	t.Logf("%d rounds of %d members, %d records, journal %d KiB; %d certificates: joining took %v and %d KiB",
		*joinRounds, *joinMembers, index, journal>>10, len(links)-1, took.Round(time.Millisecond), received>>10)
	if len(links) < 2 {
		t.Fatal("no epoch has a certificate")
	}
	if received > uint64(journal)/2 && *joinRounds > 75 {
		t.Errorf("%d bytes of a journal of %d: the certificates save nothing", received, journal)
	}
	if _, err := os.Stat(certificatesPath(dir, joinRun)); err != nil {
		t.Error(err)
	}
}
