package localnet

import (
	"slices"

	"github.com/psyche-go/psyche/chain/transaction"
)

// Record is a transaction that landed. It may have failed, but has paid its fee.
type Record struct {
	Name      transaction.Signature
	Raw       []byte // nil for an airdrop
	Message   transaction.Message
	Slot      uint64
	Time      int64
	Err       *TransactionError
	Fee       uint64
	Units     uint64
	Price     uint64 // micro-lamports per compute unit
	Logs      []string
	Pre, Post []uint64 // lamports of the message's accounts
	Return    *ReturnData
}

// ReturnData is the return data of the last program that set any.
type ReturnData struct {
	Program transaction.PublicKey
	Data    []byte
}

// mentions reports whether the transaction names an account.
func (r *Record) mentions(key transaction.PublicKey) bool {
	return slices.Contains(r.Message.Keys, key)
}

// record returns a transaction in the view, or nil.
func (v View) record(name transaction.Signature) *Record {
	v.l.mu.Lock()
	defer v.l.mu.Unlock()
	if r := v.l.names[name]; r != nil && r.Slot <= v.Slot {
		return r
	}
	return nil
}

// cursor is a position in the order of all transactions: a slot and a number of its transactions.
type cursor struct {
	slot uint64
	seen int
}

// since returns the transactions of the view after a position, and the new position.
func (v View) since(c cursor) ([]*Record, cursor) {
	v.l.mu.Lock()
	defer v.l.mu.Unlock()
	var records []*Record
	for i := v.l.index(c.slot); i < len(v.l.slots) && v.l.slots[i].number <= v.Slot; i++ {
		s := v.l.slots[i]
		switch {
		case s.number < c.slot:
			continue
		case s.number > c.slot:
			c = cursor{slot: s.number}
		}
		records = append(records, s.records[min(c.seen, len(s.records)):]...)
		c.seen = len(s.records)
	}
	return records, c
}

// Newest returns transactions that name an account, newest first. It returns at most limit
// transactions. It returns only transactions older than the transaction before and newer than the
// transaction until, if these are known.
func (v View) Newest(key transaction.PublicKey, limit int, before, until transaction.Signature) []*Record {
	v.l.mu.Lock()
	defer v.l.mu.Unlock()
	var found []*Record
	skipping := v.l.names[before] != nil
	for _, s := range slices.Backward(v.l.slots) {
		if s.number > v.Slot {
			continue
		}
		for _, r := range slices.Backward(s.records) {
			switch {
			case r.Name == until || len(found) == limit:
				return found
			case r.Name == before:
				skipping = false
			case !skipping && r.mentions(key):
				found = append(found, r)
			}
		}
	}
	return found
}

// fees returns the prices of transactions that write to any of keys, for the newest slots, oldest
// first. The price of a slot without such transactions is zero.
func (v View) fees(keys []transaction.PublicKey, slots int) (numbers, prices []uint64) {
	v.l.mu.Lock()
	defer v.l.mu.Unlock()
	last := v.l.index(v.Slot)
	for _, s := range v.l.slots[max(0, last+1-slots) : last+1] {
		lowest := uint64(0)
		for _, r := range s.records {
			if r.writesAll(keys) && (lowest == 0 || r.Price < lowest) {
				lowest = r.Price
			}
		}
		numbers, prices = append(numbers, s.number), append(prices, lowest)
	}
	return numbers, prices
}

// writesAll reports whether the transaction locks all of keys for writing.
func (r *Record) writesAll(keys []transaction.PublicKey) bool {
	for _, key := range keys {
		i := slices.Index(r.Message.Keys, key)
		if i < 0 || !r.Message.IsWritable(i) {
			return false
		}
	}
	return true
}

// count returns the number of stored transactions in the view.
func (v View) count() int {
	records, _ := v.since(cursor{})
	return len(records)
}
