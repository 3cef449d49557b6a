package programtest

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/psyche-go/psyche/chain/event"
	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/sbpf"
	"github.com/psyche-go/psyche/chain/sbpf/runtime"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
)

// unitsOfTransaction is the maximum cost of a transaction on the chain.
const unitsOfTransaction = 1_400_000

// programID begins with the number of an instruction, because it follows the data of an
// instruction.
var programID = func() [32]byte {
	id := clientID(-1)
	id[0] = transaction.RunTick
	return id
}()

func addressWithSeed(base [32]byte, seed string) [32]byte {
	return sha256.Sum256(slices.Concat(base[:], []byte(seed), programID[:]))
}

// deployed is a run on the chain: the whole program with an account, in the chain's runtime. It
// contains the expected host's part of the account. The pair that drives it contains the expected
// state.
type deployed struct {
	*rand.Rand
	elf     *sbpf.Program
	sysvars runtime.Sysvars
	run     *runtime.Account
	want    layout.Account // without State
	drawn   [32]byte       // the draw of the next tick
	shown   []byte         // the state without its number
	last    runtime.Result
	note    func(instruction byte, before, after []byte, o operation, units uint64)
	log     func(actor [32]byte, data []byte, logged [][]byte)
}

func newDeployed(elf *sbpf.Program) *deployed {
	d := &deployed{Rand: rand.New(rand.NewPCG(1, 2)), elf: elf, shown: make([]byte, layout.Size)}
	d.sysvars.Rent = runtime.DefaultRent
	d.pass(5) // a slot may be shorter than the time for which a draw is remembered
	return d
}

// pass advances to a later slot. Some slots in between are skipped. Each slot that is not skipped
// has a hash, and so has the slot before the new one.
func (d *deployed) pass(slots uint64) {
	pass(&d.sysvars, slots, func() bool { return d.IntN(5) == 0 })
}

func pass(v *runtime.Sysvars, slots uint64, skipped func() bool) {
	to := v.Clock.Slot + slots
	for slot := v.Clock.Slot; slot < to; slot++ {
		if slot+1 == to || !skipped() {
			v.SlotHashes = slices.Insert(v.SlotHashes, 0, hashOf(slot))
		}
	}
	v.SlotHashes = v.SlotHashes[:min(len(v.SlotHashes), runtime.MaxSlotHashes)]
	v.Clock.Slot = to
}

func hashOf(slot uint64) runtime.SlotHash {
	return runtime.SlotHash{Slot: slot, Hash: sha256.Sum256(le.AppendUint64(nil, slot))}
}

// invoke executes an instruction whose accounts are the run and the signer, if there is one. A
// refused instruction must not change anything.
func (d *deployed) invoke(o operation, signer *coordinator.ClientID, data []byte) error {
	accounts := []*runtime.Account{d.run}
	var actor [32]byte
	if signer != nil {
		actor = *signer
		accounts = append(accounts, &runtime.Account{Key: actor, Lamports: 1, Signer: true})
	}
	if data[0] == transaction.RunAct && len(data) > 9 && data[9] == kindEquivocation {
		accounts = append(accounts, d.proven(o, data))
	}
	if data[0] == transaction.RunAct && len(data) > 9 && data[9] == kindAdmit {
		accounts = append(accounts, d.granted(data[9:]))
	}
	before := d.run.Data // an account is replaced, not modified
	result, err := invoke(d.elf, &d.sysvars, accounts, data)
	d.last = result
	if err != nil && (len(result.Data) > 0 || &before[0] != &d.run.Data[0]) {
		return fmt.Errorf("instruction %d is refused (%w) and logs %x", data[0], err, result.Data)
	}
	if d.note != nil {
		d.note(data[0], before, d.run.Data, o, result.Units)
	}
	if d.log != nil && err == nil {
		d.log(actor, data, result.Data)
	}
	return err
}

// resultOf returns a refusal of the rules as a result. All other errors are errors of the test.
func resultOf(err error) (uint64, error) {
	if err == nil {
		return 0, nil
	}
	e, ok := errors.AsType[runtime.Error](err)
	if !ok || e.Name != "Custom" || !coordinator.Code(e.Code).Valid() {
		return 0, err
	}
	return uint64(e.Code), nil
}

func (d *deployed) do(o operation) (answer, error) {
	before := d.run
	var data []byte
	if before != nil {
		data = before.Data
	}
	result, err := d.perform(o)
	if err != nil {
		return answer{}, err
	}
	a := answer{result: result, number: 0, changed: 1}
	if before == d.run && bytes.Equal(state(data), state(d.run.Data)) {
		a.changed = 0
	}
	return a, d.checkHost()
}

func (d *deployed) perform(o operation) (uint64, error) {
	switch o.kind {
	case opGenesis:
		return d.genesis(o)
	case opApply:
		return d.act(o)
	case opTick:
		return d.tick(o)
	case opLoad:
		d.run.Data = slices.Clone(d.run.Data)
		copy(d.run.Data[layout.StateOffset:], o.body)
		le.PutUint64(d.run.Data[layout.StateOffset+sequenceAt:], d.want.Sequence)
		d.run.Data[12], d.run.Data[13] = o.body[12], o.body[16]
		d.mainIsTheStates()
		return 0, nil
	}
	return 0, fmt.Errorf("operation %d: the program has no such operation", o.kind)
}

// The parts of a state that tests change.
const (
	sequenceAt  = 56
	hostAt      = 88
	authorityAt = layout.JoinAuthorityOffset - layout.StateOffset - 32
)

func state(account []byte) []byte {
	if account == nil {
		return nil
	}
	return account[layout.StateOffset : layout.StateOffset+layout.Size]
}

// mainIsTheStates sets the account's main authority to the main authority of the state.
func (d *deployed) mainIsTheStates() {
	d.want.Main = [32]byte(state(d.run.Data)[authorityAt:])
	copy(d.run.Data[16:], d.want.Main[:])
}

// state returns the state without its number, which Go's state does not have.
func (d *deployed) state() []byte {
	copy(d.shown, state(d.run.Data))
	clear(d.shown[sequenceAt : sequenceAt+8])
	return d.shown
}

// checkHost compares the host's part of the account with the expected one.
func (d *deployed) checkHost() error {
	now := d.run.Data
	x := d.want
	x.State.RunState, x.State.Closed = coordinator.RunState(state(now)[12]), state(now)[16] == 1
	want := layout.AppendAccount(nil, &x)
	const stageAt = layout.StateOffset + layout.Size
	if got, want := now[:layout.StateOffset], want[:layout.StateOffset]; !bytes.Equal(got, want) {
		return fmt.Errorf("the account begins with %x, want %x", got, want)
	}
	if !bytes.Equal(now[stageAt:], want[stageAt:]) {
		return errors.New("the staging area is not what was written")
	}
	if n := le.Uint64(state(now)[sequenceAt:]); n != x.Sequence {
		return fmt.Errorf("the account's number is %d, want %d", n, x.Sequence)
	}
	return nil
}

// stage writes bytes in one piece; transactions would need several.
func (d *deployed) stage(signer coordinator.ClientID, b []byte) ([]byte, error) {
	digest := sha256.Sum256(b)
	named := append(le.AppendUint32(nil, uint32(len(b))), digest[:]...)
	if len(b) == 0 {
		return named, nil
	}
	if err := d.invoke(operation{}, &signer, append([]byte{transaction.RunWrite, 0, 0, 0, 0}, b...)); err != nil {
		return nil, err
	}
	if len(d.want.Stage) < len(b) {
		d.want.Stage = append(d.want.Stage, make([]byte, len(b)-len(d.want.Stage))...)
	}
	copy(d.want.Stage, b)
	return named, nil
}

// tooLong checks that an action that is longer than any valid one is refused when it is staged. Go
// rejects it as malformed.
func (d *deployed) tooLong(b []byte) (uint64, error) {
	if _, err := d.stage(d.want.Main, b); !errors.Is(err, runtime.ErrInvalidInstructionData) {
		return 0, fmt.Errorf("%d bytes are staged: %w", len(b), err)
	}
	return uint64(coordinator.ErrMalformed), nil
}

// genesis begins a run with a genesis whose host is the account's address, as required on the
// chain. It then replaces the host by the test's host, so that this can act.
func (d *deployed) genesis(o operation) (uint64, error) {
	body := append(slices.Clone(o.body), make([]byte, max(0, 114-len(o.body)))...)
	host, main, runID := coordinator.ClientID(body), coordinator.ClientID(body[32:]), ""
	if main == (coordinator.ClientID{}) {
		main = host
	}
	if n := min(int(body[113]), len(body)-114); n <= 32 {
		runID = string(body[114 : 114+n])
	}
	address := addressWithSeed(main, runID)
	copy(body, address[:])
	copy(body[32:], main[:])
	d.run = &runtime.Account{Key: address, Owner: programID, Lamports: 1e9, Data: make([]byte, layout.AccountSize), Writable: true}
	d.want = layout.Account{}
	if err := d.invoke(o, &main, []byte{transaction.RunInit}); err != nil {
		return 0, err
	}
	d.want.Main = main
	named, err := d.stage(main, body[:len(o.body)])
	if err != nil {
		return 0, err
	}
	result, err := resultOf(d.invoke(o, &main, append([]byte{transaction.RunGenesis}, named...)))
	if err != nil || result != 0 {
		return result, err
	}
	d.want.Stage = nil
	d.want.Head, d.want.Sequence = event.FirstHead(programID, address, main, [32]byte(named[4:])), 0
	if err := d.changed(event.Event{Instruction: transaction.RunGenesis}, event.Cause{Actor: main, Data: named}); err != nil {
		return 0, err
	}
	s := state(d.run.Data)
	copy(s[hostAt:], host[:])
	return 0, nil
}

// logged checks that the last instruction logged an event.
func (d *deployed) logged(e event.Event) error {
	e.Sequence, e.Slot, e.Now = d.want.Sequence, d.sysvars.Clock.Slot, uint64(d.sysvars.Clock.UnixTimestamp)*1000
	if len(d.last.Data) != 1 || !bytes.Equal(d.last.Data[0], e.AppendTo(nil)) {
		return fmt.Errorf("logs %x, want %+v", d.last.Data, e)
	}
	decoded, err := event.Decode(d.last.Data[0])
	if err != nil || decoded != e {
		return fmt.Errorf("the event reads as %+v (%w), want %+v", decoded, err, e)
	}
	return nil
}

// act sends an action. The contents of an UpdateConfig are staged first.
func (d *deployed) act(o operation) (uint64, error) {
	d.pass(uint64(d.IntN(3)))
	action := o.body
	if len(action) > 0 && action[0] == kindUpdateConfig {
		if len(action)-1 > layout.StageSize {
			return d.tooLong(action[1:])
		}
		named, err := d.stage(d.want.Main, action[1:])
		if err != nil {
			return 0, err
		}
		action = append([]byte{kindUpdateConfig}, named...)
	}
	if len(action) > 0 && action[0] == kindEquivocation {
		action = d.ofThisRun(action)
	}
	before := state(d.run.Data)[12]
	result, err := resultOf(d.invoke(o, &o.from, append(le.AppendUint64([]byte{transaction.RunAct}, o.nonce), action...)))
	if err != nil || result != 0 {
		return result, err
	}
	if len(action) > 0 && action[0] == kindUpdateConfig {
		d.want.Stage = nil
	}
	if state(d.run.Data)[12] != before || action[0] == kindSetPaused {
		d.want.Armed = 0
	}
	return 0, d.changed(event.Event{Instruction: transaction.RunAct}, event.Cause{Actor: o.from, Nonce: o.nonce, Data: action})
}

const (
	kindSetPaused    = 7
	kindUpdateConfig = 8
	kindEquivocation = 14
	kindAdmit        = 21
)

// changed records the effects of a change of the state: the next number, a new head, and an event.
func (d *deployed) changed(e event.Event, by event.Cause) error {
	d.want.Sequence++
	d.want.Slot = d.sysvars.Clock.Slot
	e.Sequence, e.Slot, e.Now = d.want.Sequence, d.want.Slot, uint64(d.sysvars.Clock.UnixTimestamp)*1000
	e.Head = e.Next(d.want.Head, by)
	d.want.Head = e.Head
	return d.logged(e)
}
