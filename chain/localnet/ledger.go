package localnet

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/psyche-go/psyche/chain/sbpf/runtime"
	"github.com/psyche-go/psyche/chain/transaction"
)

var le = binary.LittleEndian

// Config configures a chain. Zero values mean the values of the public chains.
type Config struct {
	Start       time.Time // the chain's clock at its first slot
	Rent        runtime.Rent
	Confirmed   int    // slots from the confirmed slot to the newest: 1
	Finalized   int    // slots from the finalized slot to the newest: 32
	Blockhashes int    // slots for which a blockhash is valid: 150
	History     int    // slots whose transactions are kept: 9,000, an hour
	FeeSignable uint64 // lamports for each signature: 5,000
	Seed        uint64 // changes the blockhashes and the genesis hash
}

func (c Config) withDefaults() Config {
	set := func(v *int, to int) {
		if *v == 0 {
			*v = to
		}
	}
	set(&c.Confirmed, 1)
	set(&c.Finalized, 32)
	set(&c.Blockhashes, 150)
	set(&c.History, 9000)
	if c.Rent == (runtime.Rent{}) {
		c.Rent = runtime.DefaultRent
	}
	c.FeeSignable = cmp.Or(c.FeeSignable, 5000)
	return c
}

// Ledger is the ledger of a chain: its slots, their transactions and the resulting accounts. Its
// methods are safe for concurrent use.
type Ledger struct {
	mu      sync.Mutex
	config  Config
	genesis transaction.Hash
	state   state
	slots   []*slot // the last is open, the first is finalized
	root    uint64  // newest finalized slot
	forks   uint64  // number of rollbacks
	names   map[transaction.Signature]*Record

	kept     kept
	replayed bool // created from the entries of a log
}

// slot contains the changes of one slot.
type slot struct {
	number, height uint64
	time           int64
	hash           transaction.Hash // set at the end of the slot
	records        []*Record
}

// firstSlot is the number of a chain's first slot.
const firstSlot = 1

// NewLedger creates a chain.
func NewLedger(c Config) *Ledger {
	l := &Ledger{config: c.withDefaults(), state: state{}, names: map[transaction.Signature]*Record{}}
	l.genesis = sha256.Sum256(le.AppendUint64([]byte("psyche/localnet/v1"), c.Seed))
	for key, name := range natives {
		l.state.put(key, 0, 0, &Account{Owner: nativeLoader, Lamports: 1, Data: []byte(name), Executable: true})
	}
	first := &slot{number: firstSlot - 1, time: c.Start.Unix(), hash: l.genesis}
	l.slots = []*slot{first, {number: firstSlot, height: 1, time: c.Start.Unix()}}
	return l
}

// Genesis returns the hash that identifies the chain.
func (l *Ledger) Genesis() transaction.Hash { return l.genesis }

// Advance ends the open slot and starts the next slot, in which the chain's clock is now. If now is
// before the clock's time, the clock does not change.
func (l *Ledger) Advance(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.advance(now.Unix())
}

func (l *Ledger) advance(now int64) {
	if !l.kept.slot(now) {
		return
	}
	open := l.open()
	open.hash = l.hashOf(open)
	l.slots = append(l.slots, &slot{number: open.number + 1, height: open.height + 1, time: max(now, open.time)})
	l.root = max(l.root, l.behind(l.config.Finalized).number)
	l.forget()
}

// skip advances n slots at once, each with the given duration, so that blockhashes expire and waits
// end.
func (l *Ledger) skip(n int, each time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	begun := l.open().time
	for i := range n {
		l.advance(begun + int64((time.Duration(i+1) * each).Seconds()))
	}
}

// hashOf returns the hash of a slot over its parent and its contents.
func (l *Ledger) hashOf(s *slot) transaction.Hash {
	h := sha256.New()
	parent := l.slots[len(l.slots)-2].hash
	h.Write(parent[:])
	h.Write(le.AppendUint64(le.AppendUint64(nil, s.number), l.forks))
	for _, r := range s.records {
		h.Write(r.Name[:])
	}
	return transaction.Hash(h.Sum(nil))
}

// forget drops slots and transactions that are too old.
func (l *Ledger) forget() {
	keep := max(l.config.History, runtime.MaxSlotHashes, l.config.Blockhashes, l.config.Finalized) + 2
	if len(l.slots) < 2*keep {
		return
	}
	old := len(l.slots) - keep
	for _, s := range l.slots[:old] {
		for _, r := range s.records {
			delete(l.names, r.Name)
		}
	}
	l.slots = slices.Clone(l.slots[old:])
}

func (l *Ledger) open() *slot { return l.slots[len(l.slots)-1] }

// behind returns the slot n slots before the open one, or the oldest slot.
func (l *Ledger) behind(n int) *slot { return l.slots[max(0, len(l.slots)-1-n)] }

// index returns the index of the newest slot whose number is at most number.
func (l *Ledger) index(number uint64) int {
	i, found := slices.BinarySearchFunc(l.slots, number, func(s *slot, n uint64) int {
		switch {
		case s.number < n:
			return -1
		case s.number > n:
			return 1
		}
		return 0
	})
	if !found {
		i--
	}
	return max(i, 0)
}

// errRollback means that slots cannot be rolled back.
var errRollback = errors.New("slots cannot be rolled back")

// rollback removes the newest n slots, including the open one, and starts a new slot, as when a
// chain switches to another fork. Accounts and transactions return to their state before these
// slots. Confirmations in these slots are void, and their numbers are not used again. Rollback
// returns the transactions of these slots, which may be submitted again. It never removes finalized
// slots.
func (l *Ledger) rollback(n int) ([][]byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 1 {
		return nil, fmt.Errorf("roll back %d slots: %w: want at least 1", n, errRollback)
	}
	left := len(l.slots) - n
	if left < 1 || l.slots[left-1].number < l.root {
		return nil, fmt.Errorf("roll back %d slots: %w: slot %d is finalized", n, errRollback, l.root)
	}
	l.kept.note(entryRollback, le.AppendUint64(nil, uint64(n)))
	newest := l.open()
	var taken [][]byte
	for _, s := range l.slots[left:] {
		for _, r := range s.records {
			delete(l.names, r.Name)
			if r.Raw != nil {
				taken = append(taken, r.Raw)
			}
		}
	}
	parent := l.slots[left-1]
	l.state.drop(parent.number)
	l.forks++
	l.slots = append(l.slots[:left:left], &slot{number: newest.number + 1, height: parent.height + 1, time: newest.time})
	return taken, nil
}
