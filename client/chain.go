package client

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/psyche-go/psyche/audit"
	"github.com/psyche-go/psyche/client/audits"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/data"
	"github.com/psyche-go/psyche/distro/codec"
	"github.com/psyche-go/psyche/event"
)

// chain is how this client's results go on from each other: before the next one is made it is known
// whether the newest is held, and if it is, it was opened; if not, the momentum is what it was before.
// The loop and the training use it.
type chain struct {
	me       coordinator.ClientID
	auditor  env.Auditor
	openings *audits.Openings
	now      func() time.Time
	emit     func(event.Body)
	log      *slog.Logger

	mu     sync.Mutex
	newest link
}

// link is an own result.
type link struct {
	step    uint32 // 0: none was made
	sent    []codec.TensorResult
	receipt *data.Receipt // for its batch; nil: there is none

	decided, held bool
	settled       bool // the trainer knows that

	drawn   bool // it is known what is to be opened
	seed    [32]byte
	senders *audits.Senders // of the round before; nil: there is none in the epoch
	opened  bool
	failed  bool // it cannot be opened
}

// made notes a result that was just made.
func (c *chain) made(payload []byte, receipt *data.Receipt) error {
	h, sent, err := c.auditor.Decode(payload)
	if err != nil {
		return fmt.Errorf("own result: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.newest = link{step: h.Step, sent: sent, receipt: receipt}
	return nil
}

// look returns the newest own result.
func (c *chain) look() link {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.newest
}

// decide notes whether the result of a step is held.
func (c *chain) decide(step uint32, held bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.newest.step == step {
		c.newest.decided, c.newest.held = true, held
	}
}

// draw notes what is to be opened of the result of a step.
func (c *chain) draw(step uint32, seed [32]byte, before *audits.Senders) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.newest.step == step {
		c.newest.drawn, c.newest.seed, c.newest.senders = true, seed, before
	}
}

// open opens the newest result as soon as it is known what of it.
func (c *chain) open() {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.newest
	if !l.drawn || l.opened || l.failed || l.decided && !l.held {
		return
	}
	if err := c.show(l); err != nil {
		l.failed = true
		c.log.Error("open the own result for who audits it", "step", l.step, "err", err)
	}
}

// finish is called by the training before it makes the next result: it opens the newest one, and
// settles it.
func (c *chain) finish() error {
	c.open()
	c.mu.Lock()
	defer c.mu.Unlock()
	l := &c.newest
	if !l.decided || l.settled {
		return nil
	}
	if err := c.auditor.Settle(l.step, l.held); err != nil {
		return fmt.Errorf("settle the own result of step %d: %w", l.step, err)
	}
	l.settled = true
	return nil
}

func (c *chain) show(l *link) error {
	shapes, begun := c.auditor.Shapes(), c.now()
	var lonely []uint32
	if l.senders != nil {
		var err error
		if lonely, err = l.senders.Lonely(l.sent); err != nil {
			return err
		}
	}
	o, err := c.auditor.Open(l.step, audit.Chunks(l.seed, l.step, c.me, shapes, audit.DefaultChunks, lonely))
	if err != nil {
		return err
	}
	bytes, err := o.Encode(shapes)
	if err != nil {
		return err
	}
	l.opened = true
	c.emit(event.Opened{Step: l.step, Bytes: len(bytes), Seconds: c.now().Sub(begun).Seconds()})
	evidence := audits.Evidence{Opening: bytes}
	if l.receipt != nil {
		evidence.Receipt = l.receipt.Signature
	}
	if err := c.openings.Keep(audits.Key{Trainer: c.me, Step: l.step}, evidence.Encode(), c.now()); err != nil {
		c.log.Warn("an opening is not kept for a restart", "step", l.step, "err", err)
	}
	return nil
}
