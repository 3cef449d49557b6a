package localnet

import (
	"maps"
	"slices"

	"github.com/psyche-go/psyche/chain/sbpf/runtime"
	"github.com/psyche-go/psyche/chain/transaction"
)

// Commitment is the confirmation level of a view.
type Commitment string

// The commitments in the JSON-RPC interface.
const (
	Processed Commitment = "processed"
	Confirmed Commitment = "confirmed"
	Finalized Commitment = "finalized"
)

// View is the chain as of a slot. Its contents change while the slot is open, and when the slot is
// rolled back.
type View struct {
	l    *Ledger
	Slot uint64
}

// At returns the chain at a commitment, as seen by a node that is lag slots behind.
func (l *Ledger) At(c Commitment, lag int) View {
	l.mu.Lock()
	defer l.mu.Unlock()
	return View{l, l.at(c, lag)}
}

func (l *Ledger) at(c Commitment, lag int) uint64 {
	switch c {
	case Processed:
		return l.behind(lag).number
	case Confirmed:
		return l.behind(lag + l.config.Confirmed).number
	}
	if lag == 0 {
		return l.root
	}
	return min(l.root, l.behind(lag+l.config.Finalized).number)
}

// height returns the number of slots of the view that were not rolled back.
func (v View) height() uint64 {
	v.l.mu.Lock()
	defer v.l.mu.Unlock()
	return v.l.slots[v.l.index(v.Slot)].height
}

// parent returns the slot before the view's slot.
func (v View) parent() uint64 {
	v.l.mu.Lock()
	defer v.l.mu.Unlock()
	return v.l.slots[max(0, v.l.index(v.Slot)-1)].number
}

// time returns the chain's clock, in seconds, and whether the slot is known.
func (v View) time() (int64, bool) {
	v.l.mu.Lock()
	defer v.l.mu.Unlock()
	s := v.l.slots[v.l.index(v.Slot)]
	return s.time, s.number == v.Slot
}

// Account returns an account, or nil.
func (v View) Account(key transaction.PublicKey) *Account {
	account, _ := v.account(key)
	return account
}

// account also returns the slot that wrote the account.
func (v View) account(key transaction.PublicKey) (*Account, uint64) {
	v.l.mu.Lock()
	defer v.l.mu.Unlock()
	if isSysvar(key) {
		return sysvarAccount(key, v.l.sysvars(v.Slot)), v.Slot
	}
	return v.l.state.at(key, v.Slot)
}

// Owned returns the accounts of a program by their keys.
func (v View) Owned(owner transaction.PublicKey) map[transaction.PublicKey]*Account {
	v.l.mu.Lock()
	defer v.l.mu.Unlock()
	owned := map[transaction.PublicKey]*Account{}
	for key := range v.l.state {
		if a, _ := v.l.state.at(key, v.Slot); a != nil && a.Owner == owner {
			owned[key] = a
		}
	}
	return owned
}

// blockhash returns the newest valid blockhash, and the last height at which a transaction that
// names it can land.
func (v View) blockhash() (hash transaction.Hash, lastHeight uint64) {
	v.l.mu.Lock()
	defer v.l.mu.Unlock()
	i := v.l.index(v.Slot)
	if i == len(v.l.slots)-1 {
		i-- // an open slot has no hash yet
	}
	s := v.l.slots[i]
	return s.hash, s.height + uint64(v.l.config.Blockhashes)
}

// isValid reports whether transactions may name a blockhash.
func (v View) isValid(hash transaction.Hash) bool {
	v.l.mu.Lock()
	defer v.l.mu.Unlock()
	return v.l.isRecent(hash, v.Slot)
}

// isRecent reports whether a transaction in the slot with this number may name a blockhash. If that
// slot is over, isRecent assumes the slot after it.
func (l *Ledger) isRecent(hash transaction.Hash, number uint64) bool {
	last := l.index(number)
	height := l.slots[last].height
	if last == len(l.slots)-1 {
		last--
	}
	for i := last; i >= 0 && l.slots[i].height+uint64(l.config.Blockhashes) >= height; i-- {
		if l.slots[i].hash == hash {
			return true
		}
	}
	return false
}

// sysvars returns the sysvars for programs of a slot.
func (l *Ledger) sysvars(number uint64) *runtime.Sysvars {
	i := l.index(number)
	s := l.slots[i]
	v := &runtime.Sysvars{Rent: l.config.Rent, Clock: runtime.Clock{
		Slot: s.number, EpochStart: l.config.Start.Unix(), LeaderScheduleEpoch: 1, UnixTimestamp: s.time,
	}}
	for _, earlier := range slices.Backward(l.slots[max(0, i-runtime.MaxSlotHashes):i]) {
		v.SlotHashes = append(v.SlotHashes, runtime.SlotHash{Slot: earlier.number, Hash: earlier.hash})
	}
	return v
}

// sortedKeys returns keys in the order of their bytes.
func sortedKeys(accounts map[transaction.PublicKey]*Account) []transaction.PublicKey {
	return slices.SortedFunc(maps.Keys(accounts), func(a, b transaction.PublicKey) int { return slices.Compare(a[:], b[:]) })
}
