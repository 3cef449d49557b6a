package handover

import (
	"sync"

	"github.com/psyche-go/psyche/record/event"
)

// tallyParts is into how many parts what is transferred is told.
const tallyParts = 50

// tally tells how much of something is here. It may be used by several goroutines.
type tally struct {
	emit func(body event.Body) // nil: nobody is told

	mu   sync.Mutex
	now  event.Transfer
	told uint64 // parts
}

// tally begins to count what is fetched for the model of a step.
func (o *Options) tally(what string, step uint32, total uint64) *tally {
	t := &tally{emit: o.Emit, now: event.Transfer{What: what, Step: step, Total: total}}
	t.tell()
	return t
}

// add counts bytes that have come.
func (t *tally) add(bytes uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now.Bytes += bytes
	if parts := t.now.Bytes * tallyParts / max(t.now.Total, 1); parts != t.told {
		t.told = parts
		t.tell()
	}
}

func (t *tally) tell() {
	if t.emit != nil && t.now.Total > 0 {
		t.emit(t.now)
	}
}
