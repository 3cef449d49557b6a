package client

import (
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/psyche-go/psyche/audit"
	"github.com/psyche-go/psyche/client/audits"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/identity"
)

// opener opens the newest own result as soon as the seed is known that says what to open, and
// before the next one is made. The loop and the training use it.
type opener struct {
	me    identity.ID
	shown *audits.Shown
	log   *slog.Logger

	trainer env.Auditor

	mu    sync.Mutex
	heads []audits.Head // of own results, newest first, be they announced or not
	seed  uint64        // of the round after the newest result's
	drawn bool          // it is known, and somebody is to see the newest result
}

// ownHeads are kept: an opening is about three results.
const ownHeads = 3

// made notes a result that was just made.
func (o *opener) made(payload []byte) error {
	h, err := audits.HeadOf(payload, 0, false)
	if err != nil {
		return fmt.Errorf("own result: %w", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if h.Previous == 0 {
		o.heads = nil
	}
	o.drawn = false
	o.heads = slices.Insert(o.heads, 0, h)
	o.heads = o.heads[:min(len(o.heads), ownHeads)]
	return nil
}

// newest returns the step of the newest own result, 0 if there is none.
func (o *opener) newest() uint32 {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.heads) == 0 {
		return 0
	}
	return o.heads[0].Step
}

// draw says what is to be opened of the newest result, if it is of that step. It reports whether
// that is new.
func (o *opener) draw(step uint32, seed uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.heads) == 0 || o.heads[0].Step != step || o.drawn {
		return false
	}
	o.seed, o.drawn = seed, true
	return true
}

// open opens the newest result if it is known what to open and it was not opened yet.
func (o *opener) open() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.drawn || o.shown.Evidence(o.heads[0].Step) != nil {
		return
	}
	step, shapes := o.heads[0].Step, o.trainer.Shapes()
	opening, err := o.trainer.Open(step, audit.Chunks(o.seed, step, o.me, shapes, audit.DefaultChunks))
	var evidence []byte
	if err == nil {
		evidence, err = audits.Evidence{Opening: opening, Heads: o.heads[1:]}.Encode(shapes)
	}
	if err != nil {
		o.drawn = false
		o.log.Error("open the own result for who audits it", "step", step, "err", err)
		return
	}
	o.shown.Keep(step, evidence)
}
