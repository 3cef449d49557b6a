package localnet

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/psyche-go/psyche/chain/transaction"
)

// Log stores the entries of a chain in order, and makes them durable.
type Log interface {
	Append(entry []byte) error
	Commit() error
}

// Kinds of entries: their first byte.
const (
	entryBegin       byte = 1 + iota // Config, as JSON
	entrySlots                       // start times of slots, 8 bytes each
	entryTransaction                 // 1 if it failed, the units that it used (8 bytes), and its bytes
	entryAirdrop                     // the receiver and 8 bytes of lamports
	entryProgram                     // address and image
	entryRollback                    // 8 bytes: the number of slots that were removed
	entryAgain                       // the chain was restarted
)

// maxEmptySlots is the maximum number of consecutive empty slots in one entry.
const maxEmptySlots = 64

// kept saves the changes of a ledger. The zero value saves nothing.
type kept struct {
	log    Log
	slots  []byte // times of slots that are not appended yet
	urgent bool   // other entries were appended since the last commit
	err    error  // first error of the log; the chain stops after it
}

func (k *kept) failed(err error) {
	if err != nil && k.err == nil {
		k.err = fmt.Errorf("keep the chain: %w", err)
	}
}

// note appends an entry.
func (k *kept) note(kind byte, parts ...[]byte) {
	if k.log == nil || k.err != nil {
		return
	}
	k.flush()
	entry := []byte{kind}
	for _, part := range parts {
		entry = append(entry, part...)
	}
	k.failed(k.log.Append(entry))
	k.urgent = true
}

// flush appends the pending slots.
func (k *kept) flush() {
	if len(k.slots) > 0 {
		k.failed(k.log.Append(append([]byte{entrySlots}, k.slots...)))
		k.slots = nil
	}
}

// slot records a new slot, and commits everything if there are important entries. It reports
// whether the chain may continue: confirmed slots are durable.
func (k *kept) slot(now int64) bool {
	if k.log == nil {
		return true
	}
	k.slots = le.AppendUint64(k.slots, uint64(now))
	if k.urgent || len(k.slots) >= 8*maxEmptySlots {
		k.commit()
	}
	return k.err == nil
}

func (k *kept) commit() {
	if k.log == nil || k.err != nil {
		return
	}
	k.flush()
	k.failed(k.log.Commit())
	k.urgent = false
}

// Keep makes the chain append all later changes to a log. Replay recreates the chain from the log's
// entries. Confirmed slots are durable. The slot that is open when the process is killed is lost,
// as on a fork. Accounts that SetAccount creates are not saved.
func (l *Ledger) Keep(log Log) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	begin, err := json.Marshal(l.config)
	if err != nil {
		return err
	}
	l.kept = kept{log: log}
	if l.replayed {
		l.again()
		l.kept.note(entryAgain)
	} else {
		l.kept.note(entryBegin, begin)
	}
	l.kept.commit()
	return l.kept.err
}

// again starts a slot after all slots that clients may have seen before the restart.
func (l *Ledger) again() {
	open := l.open()
	open.hash = l.hashOf(open)
	l.slots = append(l.slots, &slot{number: open.number + 2*maxEmptySlots, height: open.height + 1, time: open.time})
	l.root = max(l.root, l.behind(l.config.Finalized).number)
}

// Sync makes all changes durable.
func (l *Ledger) Sync() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept.commit()
	return l.kept.err
}

// err returns the error of saving changes that stopped the chain, or nil.
func (l *Ledger) err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept.err
}

// errReplay means that entries do not belong to a chain, or that replaying them gives a different
// result.
var errReplay = errors.New("the recorded chain cannot be replayed")

// Replay recreates a chain from the entries of its log, given in order.
type Replay struct{ ledger *Ledger }

// Ledger returns the chain, or nil before its first entry. To save further changes, call Keep
// before the chain continues.
func (r *Replay) Ledger() *Ledger { return r.ledger }

// Entry applies an entry.
func (r *Replay) Entry(entry []byte) error {
	if len(entry) == 0 {
		return fmt.Errorf("%w: an entry is empty", errReplay)
	}
	kind, body := entry[0], entry[1:]
	if (kind == entryBegin) != (r.ledger == nil) {
		return fmt.Errorf("%w: the first entry, and only the first, must start the ledger", errReplay)
	}
	if kind == entryBegin {
		var config Config
		if err := json.Unmarshal(body, &config); err != nil {
			return fmt.Errorf("%w: %w", errReplay, err)
		}
		r.ledger = NewLedger(config)
		r.ledger.replayed = true
		return nil
	}
	if err := r.ledger.redo(kind, body); err != nil {
		return fmt.Errorf("%w: %w", errReplay, err)
	}
	return nil
}

// redo repeats the operation of an entry.
func (l *Ledger) redo(kind byte, body []byte) error {
	const key = len(transaction.PublicKey{})
	switch {
	case kind == entrySlots && len(body)%8 == 0:
		for ; len(body) > 0; body = body[8:] {
			l.Advance(time.Unix(int64(le.Uint64(body)), 0))
		}
		return nil
	case kind == entryTransaction && len(body) > 9:
		return l.redoTransaction(body[0] == 1, le.Uint64(body[1:]), append([]byte(nil), body[9:]...))
	case kind == entryAirdrop && len(body) == key+8:
		_, err := l.Airdrop(transaction.PublicKey(body[:key]), le.Uint64(body[key:]))
		return err
	case kind == entryProgram && len(body) > key:
		return l.SetProgram(transaction.PublicKey(body[:key]), body[key:])
	case kind == entryRollback && len(body) == 8:
		_, err := l.rollback(int(le.Uint64(body)))
		return err
	case kind == entryAgain && len(body) == 0:
		l.mu.Lock()
		defer l.mu.Unlock()
		l.again()
		return nil
	}
	return fmt.Errorf("unknown entry of kind %d with %d bytes", kind, len(body))
}

// redoTransaction repeats a transaction, and returns an error if its result differs.
func (l *Ledger) redoTransaction(failed bool, units uint64, raw []byte) error {
	record, err := l.submit(raw)
	if err != nil {
		return err
	}
	if record.Units != units || (record.Err != nil) != failed {
		return fmt.Errorf("transaction %s used %d units when it was recorded (failed: %t), but %d now (failed: %t); continue with the version that recorded it",
			record.Name, units, failed, record.Units, record.Err != nil)
	}
	return nil
}

// noteTransaction records a transaction that landed.
func (l *Ledger) noteTransaction(r *Record, raw []byte) {
	ended := byte(0)
	if r.Err != nil {
		ended = 1
	}
	l.kept.note(entryTransaction, le.AppendUint64([]byte{ended}, r.Units), raw)
}
