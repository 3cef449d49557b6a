package sim

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/journal"
	"github.com/psyche-go/psyche/record/wire"
)

// disk holds the host's journal: what is durable, and what is being written.
type disk struct {
	durable []byte
	last    [sha256.Size]byte // hash of the newest entry, written or not
	writing []byte
	records [][]byte // that are being written
}

// unsigned returns an action as a record has it, but for the signature, which here nobody can forge.
func unsigned(from coordinator.ClientID, nonce uint64, a coordinator.Action) wire.SignedAction {
	raw := binary.LittleEndian.AppendUint64(from[:], nonce)
	return wire.SignedAction{From: identity.ID(from), Nonce: nonce, Action: a, Raw: wire.AppendAction(raw, a)}
}

// decodeRecord reads a record of the host's log.
func decodeRecord(b []byte) (r follow.Record, err error) {
	const sender = 1 + identity.IDSize + 8
	if len(b) <= sender || follow.Kind(b[0]) != follow.KindAction {
		return follow.Decode(b, [32]byte{})
	}
	r = follow.Record{Kind: follow.KindAction, Action: wire.SignedAction{From: identity.ID(b[1:]), Nonce: binary.LittleEndian.Uint64(b[sender-8:]), Raw: b[1:]}}
	r.Action.Action, err = wire.DecodeAction(b[sender:])
	return r, err
}

// add appends a record to what is written next.
func (d *disk) add(payload []byte) {
	if len(d.durable) == 0 && len(d.writing) == 0 {
		d.writing = append(d.writing, journal.Magic...)
	}
	d.writing, d.last = journal.AppendEntry(d.writing, d.last, payload)
	d.records = append(d.records, payload)
}

// synced makes everything durable.
func (d *disk) synced() { d.cut(len(d.writing)) }

// cut ends a write: so many of its bytes are there.
func (d *disk) cut(n int) {
	d.durable = append(d.durable, d.writing[:n]...)
	d.writing, d.records = d.writing[:0], nil
}

// replay reads the journal as a host does that starts: it cuts a torn tail and returns
// the log and every action's sender and nonce.
func (d *disk) replay(redo func(*coordinator.State, follow.Record) error) (log *follow.Follower, actions []signature, err error) {
	summary, err := journal.Read(bytes.NewReader(d.durable), func(payload []byte) error {
		r, err := decodeRecord(bytes.Clone(payload))
		switch {
		case err != nil:
			return err
		case log == nil:
			log, err = follow.Begin(r.Genesis)
			return err
		case r.Kind == follow.KindAction:
			actions = append(actions, signature{coordinator.ClientID(r.Action.From), r.Action.Nonce})
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

// signature names an action: nobody signs two with one nonce.
type signature struct {
	from  coordinator.ClientID
	nonce uint64
}
