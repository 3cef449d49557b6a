package archive

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/chain/event"
	"github.com/psyche-go/psyche/chain/transaction"
)

// ErrArchive means that a file is not an archive of the run, or does not verify.
var ErrArchive = errors.New("archive does not verify")

// magic starts the header.
const magic = "psyche/archive/v1"

// maxEvents limits the events of one transaction, which has at most 1,232 bytes.
const maxEvents = 64

var le = binary.LittleEndian

// Header identifies the run of an archive.
type Header struct {
	Program transaction.PublicKey // program that hosts the run
	Run     transaction.PublicKey // account of the run
	Genesis transaction.Hash      // of the chain
}

// AppendTo appends the first record of an archive.
func (h *Header) AppendTo(b []byte) []byte {
	b = append(b, magic...)
	b = append(append(b, h.Program[:]...), h.Run[:]...)
	return append(b, h.Genesis[:]...)
}

// readHeader parses the first record.
func readHeader(b []byte) (Header, error) {
	if len(b) != len(magic)+3*32 || string(b[:len(magic)]) != magic {
		return Header{}, fmt.Errorf("%w: no archive header at the start", ErrArchive)
	}
	b = b[len(magic):]
	return Header{transaction.PublicKey(b), transaction.PublicKey(b[32:]), transaction.Hash(b[64:])}, nil
}

// Record is a transaction that changed the run.
type Record struct {
	Slot        uint64
	Events      []event.Event
	Transaction transaction.Transaction
}

// AppendTo appends the record: slot, number of events, events, transaction.
func (r *Record) AppendTo(b []byte) ([]byte, error) {
	raw, err := r.Transaction.Marshal()
	if err != nil {
		return nil, err
	}
	b = append(le.AppendUint64(b, r.Slot), byte(len(r.Events)))
	for i := range r.Events {
		b = r.Events[i].AppendTo(b)
	}
	return append(b, raw...), nil
}

// readRecord parses the output of AppendTo.
func readRecord(b []byte) (Record, error) {
	if len(b) < 9 || b[8] > maxEvents || len(b) < 9+int(b[8])*event.Size {
		return Record{}, fmt.Errorf("%w: a record of %d bytes is truncated", ErrArchive, len(b))
	}
	r := Record{Slot: le.Uint64(b)}
	n := int(b[8])
	for i := range n {
		e, err := event.Decode(b[9+i*event.Size:][:event.Size])
		if err != nil {
			return Record{}, fmt.Errorf("%w: %w", ErrArchive, err)
		}
		r.Events = append(r.Events, e)
	}
	var err error
	if r.Transaction, err = transaction.Unmarshal(b[9+n*event.Size:]); err != nil {
		err = fmt.Errorf("%w: %w", ErrArchive, err)
	}
	return r, err
}
