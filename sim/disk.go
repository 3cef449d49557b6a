package sim

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/server/journal"
	"github.com/psyche-go/psyche/wire"
)

// disk holds the host's journal: what is durable, and what is being written.
type disk struct {
	durable []byte
	last    [sha256.Size]byte // hash of the newest entry, written or not
	count   uint64            // of entries, written or not
	writing []byte
	records []record // that are being written
}

// Kinds of records. They mean what those of package server mean; the signature of an
// action, which here nobody can forge, is left out.
const (
	recordGenesis = iota + 1
	recordTick
	recordAction
)

// record is one entry of the journal.
type record struct {
	kind    byte
	genesis []byte
	now     uint64
	draw    [32]byte
	from    coordinator.ClientID
	nonce   uint64
	action  coordinator.Action
}

var errRecord = errors.New("not a record")

func (r record) appendTo(b []byte) []byte {
	b = append(b, r.kind)
	switch r.kind {
	case recordGenesis:
		return append(b, r.genesis...)
	case recordTick:
		b = binary.LittleEndian.AppendUint64(b, r.now)
		return append(b, r.draw[:]...)
	default:
		b = append(b, r.from[:]...)
		b = binary.LittleEndian.AppendUint64(b, r.nonce)
		return wire.AppendAction(b, r.action)
	}
}

func decodeRecord(b []byte) (r record, err error) {
	if len(b) == 0 {
		return r, errRecord
	}
	r.kind, b = b[0], b[1:]
	switch {
	case r.kind == recordGenesis:
		r.genesis = bytes.Clone(b)
	case r.kind == recordTick && len(b) == 40:
		r.now, r.draw = binary.LittleEndian.Uint64(b), [32]byte(b[8:])
	case r.kind == recordAction && len(b) > 40:
		r.from, r.nonce = coordinator.ClientID(b[:32]), binary.LittleEndian.Uint64(b[32:])
		r.action, err = wire.DecodeAction(b[40:])
	default:
		err = errRecord
	}
	return r, err
}

// apply does to a state what the record did.
func (r record) apply(rules *rules, s *coordinator.State) error {
	switch r.kind {
	case recordGenesis:
		state, err := coordinator.Decode(r.genesis)
		if err == nil {
			*s = state
		}
		return err
	case recordTick:
		if !rules.doTick(s, r.now, r.draw) {
			return fmt.Errorf("%w: a tick without effect", errRecord)
		}
		return nil
	default:
		return rules.doApply(s, r.from, r.nonce, r.action)
	}
}

// add appends a record to what is written next.
func (d *disk) add(r record) {
	if len(d.durable) == 0 && len(d.writing) == 0 {
		d.writing = append(d.writing, journal.Magic...)
	}
	d.writing, d.last = journal.AppendEntry(d.writing, d.last, r.appendTo(nil))
	d.records, d.count = append(d.records, r), d.count+1
}

// synced makes everything durable.
func (d *disk) synced() {
	d.durable = append(d.durable, d.writing...)
	d.writing, d.records = d.writing[:0], d.records[:0]
}

// cut ends a write early: so many of its bytes are there.
func (d *disk) cut(n int) {
	d.durable = append(d.durable, d.writing[:n]...)
	d.writing, d.records = d.writing[:0], d.records[:0]
}

// replay reads the journal as a host does that starts: it cuts a torn tail and returns
// the state and every action's sender and nonce.
func (d *disk) replay(rules *rules) (s coordinator.State, actions []signature, err error) {
	d.count = 0
	summary, err := journal.Read(bytes.NewReader(d.durable), func(payload []byte) error {
		d.count++
		r, err := decodeRecord(payload)
		if err == nil {
			err = r.apply(rules, &s)
		}
		if r.kind == recordAction {
			actions = append(actions, signature{r.from, r.nonce})
		}
		return err
	})
	d.durable = d.durable[:summary.Size]
	d.last = summary.Last
	return s, actions, err
}

// signature names an action: nobody signs two with one nonce.
type signature struct {
	from  coordinator.ClientID
	nonce uint64
}
