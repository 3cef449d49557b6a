package localnet

import (
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

// Config is what a chain begins with. Zeros stand for the values of the public chains.
type Config struct {
	Start       time.Time // the chain's clock at its first slot
	Rent        runtime.Rent
	Confirmed   int    // how many slots behind the newest one that is confirmed: 1
	Finalized   int    // how many behind the one that is finalized: 32
	Blockhashes int    // for how many slots a blockhash can be used: 150
	History     int    // how many slots' transactions are kept: 9,000, an hour
	FeeSignable uint64 // lamports for each signature: 5,000
	Seed        uint64 // makes another chain: other blockhashes, another genesis hash
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
	if c.FeeSignable == 0 {
		c.FeeSignable = 5000
	}
	return c
}

// Ledger is what a chain consists of, in the word of Solana: its slots, their transactions and the accounts
// that these left. Methods may be called at once by several goroutines.
type Ledger struct {
	mu      sync.Mutex
	config  Config
	genesis transaction.Hash
	state   state
	slots   []*slot // the last is open, the first is finalized
	root    uint64  // newest finalized slot
	forks   uint64  // how often slots were taken back
	names   map[transaction.Signature]*Record

	kept     kept
	replayed bool // made of the entries of a log
}

// slot is what happened in one.
type slot struct {
	number, height uint64
	time           int64
	hash           transaction.Hash // known when the slot is over
	records        []*Record
}

// firstSlot is the number of a chain's first slot.
const firstSlot = 1

// NewLedger begins a chain.
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

// Genesis names the chain.
func (l *Ledger) Genesis() transaction.Hash { return l.genesis }

// Advance ends the open slot and begins the next, in which the chain's clock shows now, or what it
// showed before if that is later.
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

// Skip lets n slots pass at once, each as long as given: blockhashes expire, waits end.
func (l *Ledger) Skip(n int, each time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	begun := l.open().time
	for i := range n {
		l.advance(begun + int64((time.Duration(i+1) * each).Seconds()))
	}
}

// hashOf chains a slot to its parent and to what it holds.
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

// forget drops slots and transactions that are too old to be asked for.
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

// behind returns the slot so many before the open one, or the oldest.
func (l *Ledger) behind(n int) *slot { return l.slots[max(0, len(l.slots)-1-n)] }

// index returns the place of the newest slot that is not after a number.
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

// errRollback says that slots cannot be rolled back.
var errRollback = errors.New("slots cannot be rolled back")

// Rollback takes back the newest n slots, the open one among them, and begins a new one, as when a
// chain goes on with another fork: accounts and transactions are as they were before, what was
// confirmed in these slots is so no more, and their numbers are not used again. It returns the
// transactions of these slots, which may be submitted again. What is finalized is never taken back.
func (l *Ledger) Rollback(n int) ([][]byte, error) {
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
