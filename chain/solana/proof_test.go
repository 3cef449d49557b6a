package solana

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/event"
	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend/backendtest"
	"github.com/psyche-go/psyche/record/wire"
)

// history makes the transactions of a run with the logs that the program would write.
type history struct {
	t       *testing.T
	program transaction.Program
	run     transaction.PublicKey
	account layout.Account
	now     uint64
	landed  []*rpc.Landed
	beside  bool // every transaction also changes a second run, directly and through a second program
}

func newHistory(t *testing.T) *history {
	h := &history{t: t, program: transaction.Program{9}, run: transaction.PublicKey{8}, now: 1_000_000}
	genesis := coordinator.Genesis{
		RunID: "replay", Host: coordinator.ClientID(h.run), MainAuthority: coordinator.ClientID(backendtest.Key(1).ID()), JoinAuthority: coordinator.ClientID(backendtest.Key(1).ID()),
		Config: testConfig(), Model: coordinator.Model{MaxSeqLen: 16, Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointDummy}},
	}
	state, err := genesis.State()
	if err != nil {
		t.Fatal(err)
	}
	h.account = layout.Account{Summary: layout.Summary{Sequence: 1, Head: [32]byte{1}}, State: state}
	return h
}

func testConfig() coordinator.Config {
	return coordinator.Config{
		WarmupTime: 60_000, CooldownTime: 60_000, RoundsPerEpoch: 4, MaxRoundTrainTime: 60_000, RoundWitnessTime: 1000,
		WaitingForMembersExtraTime: 1000, GlobalBatchSizeStart: 64, GlobalBatchSizeEnd: 64, TotalSteps: 8, InitMinClients: 1, MinClients: 1,
	}
}

// land adds a transaction with the instructions. Instruction i logs event i, if there is one.
func (h *history) land(key identity.Key, events []event.Event, instructions ...transaction.Instruction) {
	h.t.Helper()
	name, other := transaction.PublicKey(h.program).String(), transaction.PublicKey{6}
	theirs := event.Event{Instruction: event.Tick, Sequence: h.account.Sequence + 1, Now: 1, Draw: [32]byte{3}, Head: [32]byte{9}}
	data := func(e event.Event) string {
		return "Program data: " + base64.StdEncoding.EncodeToString(e.AppendTo(nil))
	}
	invoke := func(depth int) string { return fmt.Sprintf("Program %s invoke [%d]", name, depth) }
	success := "Program " + name + " success"
	var logs []string
	if h.beside {
		instructions = append([]transaction.Instruction{h.program.Tick(transaction.PublicKey{7}, nil)}, instructions...)
		logs = append(logs, invoke(1), data(theirs), success)
	}
	for i := range instructions[len(logs)/3:] {
		logs = append(logs, invoke(1))
		if i < len(events) {
			logs = append(logs, data(events[i]))
		}
		logs = append(logs, success)
	}
	if h.beside {
		instructions = append(instructions, transaction.Instruction{Program: other}, h.program.Tick(transaction.PublicKey{7}, []byte("again")))
		logs = append(logs, "Program "+other.String()+" invoke [1]", invoke(2), data(theirs), success, "Program "+other.String()+" success",
			invoke(1), data(theirs), success)
	}
	m, err := transaction.Compile(transaction.PublicKey(key.ID()), transaction.Hash{byte(len(h.landed))}, instructions...)
	if err != nil {
		h.t.Fatal(err)
	}
	signed, err := m.Sign(key)
	if err != nil {
		h.t.Fatal(err)
	}
	h.landed = append(h.landed, &rpc.Landed{Transaction: signed, Logs: logs})
}

// event creates an event with the next head of the hash chain.
func (h *history) event(kind uint64, draw [32]byte, by event.Cause) event.Event {
	h.account.Sequence++
	e := event.Event{Instruction: kind, Sequence: h.account.Sequence, Now: h.now, Draw: draw}
	e.Head = e.Next(h.account.Head, by)
	h.account.Head = e.Head
	return e
}

func (h *history) act(n byte, nonce uint64, a coordinator.Action) {
	h.t.Helper()
	key := backendtest.Key(n)
	id := transaction.PublicKey(key.ID())
	encoded := wire.AppendAction(nil, a)
	in := h.program.Act(h.run, id, nonce, encoded)
	if _, staged := a.(coordinator.UpdateConfig); staged {
		for _, write := range h.program.Writes(h.run, id, encoded[1:], 100) {
			h.land(key, nil, write)
		}
		in = h.program.ActStaged(h.run, id, nonce, encoded[0], encoded[1:])
	}
	if err := h.account.State.Apply(coordinator.ClientID(id), nonce, a); err != nil {
		h.t.Fatal(err)
	}
	h.land(key, []event.Event{h.event(event.Act, [32]byte{}, event.Cause{Actor: id, Nonce: nonce, Data: in.Data[9:]})}, in)
}

func (h *history) tick(draw [32]byte) {
	h.t.Helper()
	if !h.account.State.Tick(h.now, draw) {
		h.t.Fatal("nothing is due")
	}
	h.land(backendtest.Key(3), []event.Event{h.event(event.Tick, draw, event.Cause{})}, h.program.Tick(h.run, nil))
}

// testHistory has actions, ticks with and without draws, a tick that waits for its draw, and an
// update.
func testHistory(t *testing.T, beside bool) (*history, *layout.Account) {
	h := newHistory(t)
	h.beside = beside
	from := h.account
	from.State = h.account.State.Clone()
	h.act(2, 1, coordinator.Join{})
	h.land(backendtest.Key(3), nil, h.program.Tick(h.run, []byte("arms")))
	h.tick([32]byte{5})
	h.now += 2000
	h.tick([32]byte{6})
	h.act(2, 2, coordinator.Ready{})
	h.tick([32]byte{7})
	h.now += 60_000
	h.tick([32]byte{0})
	h.act(1, 1, coordinator.SetPaused{Paused: true})
	for range 5 {
		if h.account.State.RunState == coordinator.Paused {
			break
		}
		h.now += 61_000
		draw := [32]byte{9}
		if !needsDraw(&h.account.State) {
			draw = [32]byte{}
		}
		h.tick(draw)
	}
	config := testConfig()
	config.TotalSteps = 16
	h.act(1, 2, coordinator.UpdateConfig{Config: config, Model: h.account.State.Model})
	return h, &from
}

func (h *history) follow(from *layout.Account) (*proof, error) {
	r := newProof(transaction.PublicKey(h.program), h.run, from)
	for _, landed := range h.landed {
		if err := r.follow(landed); err != nil {
			return r, err
		}
	}
	return r, nil
}

func TestReplay(t *testing.T) {
	for name, beside := range map[string]bool{"alone": false, "beside another run": true} {
		t.Run(name, func(t *testing.T) { testReplay(t, beside) })
	}
}

func testReplay(t *testing.T, beside bool) {
	h, from := testHistory(t, beside)
	before := string(from.State.AppendTo(nil))
	r, err := h.follow(from)
	if err != nil {
		t.Fatal(err)
	}
	target := sighting{claim: claim{h.account.Sequence, h.account.Head}, account: &h.account}
	if !r.shows(&target) {
		t.Errorf("the proof leads to event %d, want %d", r.run.Sequence, target.sequence)
	}
	if string(from.State.AppendTo(nil)) != before {
		t.Error("the given start of the proof was modified")
	}
	// Transactions that the state already contains are known to be old, whatever else they do.
	half := newProof(transaction.PublicKey(h.program), h.run, from)
	for _, landed := range h.landed[:3] {
		if err := half.follow(landed); err != nil {
			t.Fatal(err)
		}
	}
	for i, landed := range h.landed[:5] {
		if old, err := half.isOld(landed); err != nil || old != (i == 0 || i == 2) { // transaction 1 starts the wait for a draw and logs nothing
			t.Errorf("transaction %d: old %v, %v", i, old, err)
		}
	}
	other := h.account
	other.State.Progress.Step++
	if target.account = &other; r.shows(&target) {
		t.Error("a different state is proved")
	}
}

func TestReplayRefuses(t *testing.T) {
	relog := func(l *rpc.Landed, change func(e *event.Event)) {
		for i, line := range l.Logs {
			encoded, ok := strings.CutPrefix(line, "Program data: ")
			if !ok {
				continue
			}
			raw, err := base64.StdEncoding.DecodeString(encoded)
			if err != nil {
				t.Fatal(err)
			}
			e, err := event.Decode(raw)
			if err != nil {
				t.Fatal(err)
			}
			change(&e)
			l.Logs[i] = "Program data: " + base64.StdEncoding.EncodeToString(e.AppendTo(nil))
		}
	}
	for name, change := range map[string]func(h *history){
		"a transaction is missing":          func(h *history) { h.landed = slices.Delete(h.landed, 2, 3) },
		"two are swapped":                   func(h *history) { h.landed[2], h.landed[3] = h.landed[3], h.landed[2] },
		"a signature is false":              func(h *history) { h.landed[0].Transaction.Signatures[0][5] ^= 1 },
		"another draw":                      func(h *history) { relog(h.landed[2], func(e *event.Event) { e.Draw[0]++ }) },
		"another time":                      func(h *history) { relog(h.landed[2], func(e *event.Event) { e.Now++ }) },
		"another head":                      func(h *history) { relog(h.landed[2], func(e *event.Event) { e.Head[0]++ }) },
		"an event of nothing":               func(h *history) { h.landed[1].Logs = slices.Clone(h.landed[2].Logs) },
		"an action without its event":       func(h *history) { h.landed[0].Logs = nil },
		"a log that was cut off":            func(h *history) { h.landed[0].Logs = append(h.landed[0].Logs, "Log truncated") },
		"another run":                       func(h *history) { h.run = transaction.PublicKey{7} },
		"a piece is missing":                func(h *history) { h.landed = slices.Delete(h.landed, len(h.landed)-2, len(h.landed)-1) },
		"beside another run, without a log": func(h *history) { h.landed[0].Logs = h.landed[0].Logs[3:] },
		"beside another run, whose event it takes": func(h *history) {
			h.landed[0].Logs = append(slices.Clone(h.landed[0].Logs[3:]), h.landed[0].Logs[:3]...)
		},
		"another action, signed by it": func(h *history) { h.forge(coordinator.Join{Epoch: 1}) },
	} {
		t.Run(name, func(t *testing.T) {
			h, from := testHistory(t, strings.HasPrefix(name, "beside"))
			change(h)
			r, err := h.follow(from)
			if err == nil && r.shows(&sighting{claim: claim{h.account.Sequence, h.account.Head}, account: &h.account}) {
				t.Fatal("the forged history is proved")
			}
			if err != nil && !errors.Is(err, errReplay) {
				t.Errorf("error %v", err)
			}
		})
	}
}

// TestReplayRefusesGrants has a node that invents a grant for its key. No signature shows
// that the grant is false, so the client must not believe the node alone.
func TestReplayRefusesGrants(t *testing.T) {
	h := newHistory(t)
	h.account.State.Authority.Permissioned = true
	from := h.account
	from.State = h.account.State.Clone()
	client := coordinator.ClientID(backendtest.Key(5).ID())
	h.act(5, 1, coordinator.Admit{Grant: coordinator.ClientID{1}, Client: client, Allowed: true})
	if r, err := h.follow(&from); !errors.Is(err, errReplay) || r.run.State.Authority.MayJoin(client) {
		t.Errorf("the node admits a key: %v", err)
	}
}

// forge replaces the first transaction by a different action with a matching event.
func (h *history) forge(a coordinator.Action) {
	id := transaction.PublicKey(backendtest.Key(2).ID())
	encoded := wire.AppendAction(nil, a)
	e := event.Event{Instruction: event.Act, Sequence: 2, Now: h.now}
	e.Head = e.Next([32]byte{1}, event.Cause{Actor: id, Nonce: 1, Data: encoded})
	rest := h.landed[1:]
	h.landed = nil
	h.land(backendtest.Key(2), []event.Event{e}, h.program.Act(h.run, id, 1, encoded))
	h.landed = append(h.landed, rest...)
}

// TestReplaySkips checks that failed transactions and calls of other programs are skipped.
func TestReplaySkips(t *testing.T) {
	h := newHistory(t)
	from := h.account
	h.land(backendtest.Key(2), nil, transaction.Transfer(transaction.PublicKey(backendtest.Key(2).ID()), h.run, 5))
	h.land(backendtest.Key(2), nil, h.program.Tick(h.run, nil))
	h.landed[1].Err = &rpc.TransactionError{Name: "InstructionError"}
	h.landed[1].Transaction.Signatures[0] = transaction.Signature{}
	if r, err := h.follow(&from); err != nil || r.run.Sequence != 1 {
		t.Errorf("event %d, %v", r.run.Sequence, err)
	}
	h.land(backendtest.Key(1), nil, h.program.Free(h.run, transaction.PublicKey(backendtest.Key(1).ID()), h.run))
	if _, err := h.follow(&from); !errors.Is(err, errReplay) {
		t.Errorf("error %v", err)
	}
}

// FuzzReplay checks that arbitrary instruction data causes no panic.
func FuzzReplay(f *testing.F) {
	for i := range byte(10) {
		f.Add(append([]byte{i}, make([]byte, 60)...), uint64(4))
	}
	fuzztest.Run(f, func(t *testing.T, data []byte, kind uint64) {
		h := newHistory(t)
		from := h.account
		key := transaction.PublicKey(backendtest.Key(2).ID())
		in := transaction.Instruction{Program: transaction.PublicKey(h.program), Data: data, Accounts: []transaction.AccountMeta{
			{Key: h.run, Writable: true}, {Key: key, Signer: true},
		}}
		cause := event.Cause{Actor: key}
		if len(data) > 9 {
			cause.Nonce, cause.Data = binary.LittleEndian.Uint64(data[1:]), data[9:]
		}
		if len(data) > 900 {
			return
		}
		h.land(backendtest.Key(2), []event.Event{h.event(3+kind%3, [32]byte{}, cause)}, in)
		if _, err := h.follow(&from); err != nil && !errors.Is(err, errReplay) {
			t.Error(fmt.Errorf("error %w", err))
		}
	})
}
