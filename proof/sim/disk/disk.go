// Package disk simulates the disk of a host: its journal, which a crash may truncate.
package disk

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/journal"
	"github.com/psyche-go/psyche/record/wire"
)

// Disk holds the host's journal: its durable part, and the current write.
type Disk struct {
	durable []byte
	last    [sha256.Size]byte // hash of the newest entry, written or not
	Writing []byte
	Records [][]byte // in the current write
}

// Unsigned returns an action as in a record, without the signature, because simulated signatures
// cannot be forged.
func Unsigned(from coordinator.ClientID, nonce uint64, a coordinator.Action) wire.SignedAction {
	raw := binary.LittleEndian.AppendUint64(from[:], nonce)
	return wire.SignedAction{From: identity.ID(from), Nonce: nonce, Action: a, Raw: wire.AppendAction(raw, a)}
}

// DecodeRecord parses a record of the host's log.
func DecodeRecord(b []byte) (r follow.Record, err error) {
	const sender = 1 + identity.IDSize + 8
	if len(b) <= sender || follow.Kind(b[0]) != follow.KindAction {
		return follow.Decode(b, [32]byte{})
	}
	r = follow.Record{Kind: follow.KindAction, Action: wire.SignedAction{From: identity.ID(b[1:]), Nonce: binary.LittleEndian.Uint64(b[sender-8:]), Raw: b[1:]}}
	r.Action.Action, err = wire.DecodeAction(b[sender:])
	return r, err
}

// Add appends a record to the current write.
func (d *Disk) Add(payload []byte) {
	if len(d.durable) == 0 && len(d.Writing) == 0 {
		d.Writing = append(d.Writing, journal.Magic...)
	}
	d.Writing, d.last = journal.AppendEntry(d.Writing, d.last, payload)
	d.Records = append(d.Records, payload)
}

// Synced makes everything durable.
func (d *Disk) Synced() { d.Cut(len(d.Writing)) }

// Cut ends a write after n of its bytes.
func (d *Disk) Cut(n int) {
	d.durable = append(d.durable, d.Writing[:n]...)
	d.Writing, d.Records = d.Writing[:0], nil
}

// Replay reads the journal like a starting host: it truncates a torn tail and returns the log, and
// the sender and nonce of every action.
func (d *Disk) Replay(redo func(*coordinator.State, follow.Record) error) (log *follow.Follower, actions []Signature, err error) {
	summary, err := journal.Read(bytes.NewReader(d.durable), func(payload []byte) error {
		r, err := DecodeRecord(bytes.Clone(payload))
		switch {
		case err != nil:
			return err
		case log == nil:
			log, err = follow.Begin(r.Genesis)
			return err
		case r.Kind == follow.KindAction:
			actions = append(actions, Signature{coordinator.ClientID(r.Action.From), r.Action.Nonce})
		}
		if err = redo(&log.State, r); err == nil {
			log.Note(payload)
		}
		return err
	})
	d.durable = d.durable[:summary.Size]
	d.last = summary.Last
	return log, actions, err
}

// Clone returns a disk with the same journal.
func (d *Disk) Clone() Disk {
	return Disk{durable: slices.Clone(d.durable), last: d.last, Writing: slices.Clone(d.Writing), Records: slices.Clone(d.Records)}
}

// Signature identifies an action: no key signs two actions with the same nonce.
type Signature struct {
	From  coordinator.ClientID
	Nonce uint64
}
