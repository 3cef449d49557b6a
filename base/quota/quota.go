// Package quota bounds memory that several members fill. Each member has a limit, so that it cannot
// take the memory of the others. All members together also have a limit.
package quota

import (
	"sync"

	"github.com/psyche-go/psyche/base/identity"
)

// Quota counts the bytes that members occupy. It is safe for concurrent use.
type Quota struct {
	each, all int64

	mu    sync.Mutex
	total int64
	of    map[identity.ID]int64 // only members with bytes
}

// New returns a Quota of at most each bytes for a member, and at most all bytes in total.
func New(each, all int64) *Quota {
	return &Quota{each: each, all: all, of: make(map[identity.ID]int64)}
}

// Take counts size bytes of a member until Free. It returns false, and counts nothing, if the member
// or all members together would exceed their limit.
func (q *Quota) Take(member identity.ID, size int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := int64(size)
	if n < 0 || n > q.each-q.of[member] || n > q.all-q.total {
		return false
	}
	if n > 0 {
		q.of[member] += n
		q.total += n
	}
	return true
}

// Free ends the count of bytes that Take counted.
func (q *Quota) Free(member identity.ID, size int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.total -= int64(size)
	if q.of[member] -= int64(size); q.of[member] == 0 {
		delete(q.of, member)
	}
}

// Used returns the bytes that all members occupy.
func (q *Quota) Used() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.total
}
