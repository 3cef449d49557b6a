package dashtest

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/archive"
	"github.com/psyche-go/psyche/chain/event"
	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash/history"
	"github.com/psyche-go/psyche/record/journal"
	"github.com/psyche-go/psyche/record/wire"
)

// programOfRuns is the program of the runs that WriteArchive plays.
var programOfRuns = transaction.PublicKey{7}

// drawAt returns the draw of a run on a chain at a time.
func drawAt(now uint64) [32]byte { return sha256.Sum256(binary.LittleEndian.AppendUint64(nil, now)) }

// chainGenesis returns the genesis of a run on a chain.
func chainGenesis(o Options) (coordinator.Genesis, error) {
	main := id(-1)
	run, err := transaction.Program(programOfRuns).RunAddress(transaction.PublicKey(main), o.RunID)
	return coordinator.Genesis{
		RunID: o.RunID, Host: coordinator.ClientID(run), MainAuthority: main, JoinAuthority: main, Config: configOf(o), Model: modelOf(o),
	}, err
}

// archiver writes the archive of a run that was never on a chain: its transactions are signed, and
// its events have the heads that the program would log.
type archiver struct {
	file    *journal.Journal
	program transaction.Program
	run     transaction.PublicKey
	head    [32]byte
	nonces  map[coordinator.ClientID]uint64
	keys    map[coordinator.ClientID]identity.Key
}

// WriteArchive plays a run as if it were on a chain, and writes its archive. It returns the run's
// header.
func WriteArchive(path string, o Options) (header archive.Header, err error) {
	o.chain = true
	genesis, err := chainGenesis(o)
	if err != nil {
		return header, err
	}
	header = archive.Header{Program: programOfRuns, Run: transaction.PublicKey(genesis.Host)}
	a := &archiver{program: transaction.Program(programOfRuns), run: header.Run, nonces: map[coordinator.ClientID]uint64{}, keys: map[coordinator.ClientID]identity.Key{}}
	for member := -1; member < o.Members; member++ {
		a.keys[id(member)] = Key(member)
	}
	if a.file, _, err = journal.Open(path, func([]byte) error { return nil }); err != nil {
		return header, err
	}
	err = a.file.Append(header.AppendTo(nil))
	if err == nil {
		err = a.begin(genesis)
	}
	if err == nil {
		err = Play(o, a.see)
	}
	if err == nil {
		err = a.file.Commit()
	}
	return header, errors.Join(err, a.file.Close())
}

// add appends a transaction that the key signs.
func (a *archiver) add(key identity.Key, e *event.Event, in transaction.Instruction) error {
	m, err := transaction.Compile(transaction.PublicKey(key.ID()), transaction.Hash{1}, in)
	if err != nil {
		return err
	}
	signed, err := m.Sign(key)
	if err != nil {
		return err
	}
	r := archive.Record{Transaction: signed}
	if e != nil {
		r.Slot, r.Events = e.Slot, []event.Event{*e}
	}
	payload, err := r.AppendTo(nil)
	if err != nil {
		return err
	}
	return a.file.Append(payload)
}

// begin creates the account and stages the genesis.
func (a *archiver) begin(g coordinator.Genesis) error {
	host := Key(-1)
	main := transaction.PublicKey(host.ID())
	staged := layout.AppendGenesis(nil, g)
	before := append([]transaction.Instruction{a.program.Init(a.run, main)}, a.program.Writes(a.run, main, staged, transaction.MaxRunWrite)...)
	for _, in := range before {
		if err := a.add(host, nil, in); err != nil {
			return err
		}
	}
	in := a.program.Genesis(a.run, main, staged)
	e := event.Event{Instruction: event.Genesis, Sequence: 1, Slot: 1, Now: began}
	e.Head = e.Next(event.FirstHead(programOfRuns, a.run, main, sha256.Sum256(staged)), event.Cause{Actor: main, Data: in.Data[1:]})
	a.head = e.Head
	return a.add(host, &e, in)
}

// see appends the transaction of an entry.
func (a *archiver) see(entry history.Entry, _ *coordinator.State) error {
	if entry.Number == 0 {
		return nil // the genesis
	}
	e := event.Event{Instruction: event.Tick, Sequence: entry.Number + 1, Slot: entry.Number + 1, Now: entry.Time, Draw: drawAt(entry.Time)}
	key, in, cause := Key(-1), a.program.Tick(a.run, binary.LittleEndian.AppendUint64(nil, entry.Number)), event.Cause{}
	if entry.Action != nil {
		a.nonces[entry.Actor]++
		key, e.Instruction, e.Draw = a.keys[entry.Actor], event.Act, [32]byte{}
		in = a.program.Act(a.run, transaction.PublicKey(entry.Actor), a.nonces[entry.Actor], wire.AppendAction(nil, entry.Action))
		cause = event.Cause{Actor: entry.Actor, Nonce: a.nonces[entry.Actor], Data: in.Data[1+8:]}
	}
	e.Head = e.Next(a.head, cause)
	a.head = e.Head
	return a.add(key, &e, in)
}
