package solana

import (
	"context"
	"crypto/sha256"
	"fmt"
	"time"

	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend"
)

// observation is a message about an endpoint to watch.
type observation struct {
	endpoint int
	answered bool // a read has ended
	sighting *sighting
	sample   *sample
	missing  error     // the endpoint reports that the run does not exist
	hint     *claim    // claim in a notice of an event
	unclear  bool      // a notice that does not contain the effect of its transaction
	proved   *sighting // state that follows from signed transactions
	proving  bool      // a proof has ended
}

// tell sends an observation to watch.
func (c *Client) tell(o observation) {
	select {
	case c.seen <- o:
	case <-c.ctx.Done():
	}
}

// watcher is the state of watch.
type watcher struct {
	client    *Client
	agreement *agreement
	looking   []bool // endpoints with a pending read
	missing   []error
	proving   bool
	dirty     bool      // there was a notice of an event
	disagree  time.Time // since when endpoints show a newer state that is not accepted
	poll      time.Time // time of the next read of heads
	fetch     time.Time // earliest time of the next read of whole accounts
	first     chan<- error
}

// watch follows the run's account on all endpoints. Only watch decides which state counts.
func (c *Client) watch(first chan<- error) {
	n, now := len(c.pool.Endpoints()), time.Now()
	w := &watcher{client: c, agreement: newAgreement(n, c.pace.Grace, now), looking: make([]bool, n), missing: make([]error, n), first: first}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-c.ctx.Done():
			return
		case o := <-c.seen:
			w.take(o, time.Now())
		case <-c.wake:
			if soon := time.Now().Add(c.pace.Fetch / 4); w.poll.After(soon) {
				w.poll = soon
			}
		case <-timer.C:
		}
		timer.Reset(max(w.advance(time.Now()), time.Millisecond))
	}
}

// take processes an observation.
func (w *watcher) take(o observation, now time.Time) {
	if o.answered {
		w.looking[o.endpoint] = false
		w.missing[o.endpoint] = o.missing
	}
	if o.proving {
		w.proving = false
	}
	switch {
	case o.missing != nil:
		w.agreement.forget(o.endpoint)
	case o.sighting != nil:
		w.agreement.observe(o.endpoint, *o.sighting, now)
	case o.hint != nil:
		w.dirty = w.dirty || !w.agreement.knows(*o.hint)
	case o.unclear:
		poke(w.client.call)
		poke(w.client.wake)
	case o.proved != nil && o.proved.sequence > w.agreement.accepted.sequence:
		w.agreement.take(*o.proved, now)
	}
	if o.sample != nil {
		w.client.mu.Lock()
		w.client.clock.observe(o.endpoint, *o.sample)
		w.client.mu.Unlock()
	}
}

// advance decides which state counts and what to read, and returns the time until its next call.
func (w *watcher) advance(now time.Time) time.Duration {
	c, a := w.client, w.agreement
	a.decide(now)
	if a.accepted.account != nil {
		c.adopt(a.accepted, a.confirm(), a.slot, now)
		w.begin(nil)
	} else if err := w.refused(); err != nil {
		w.begin(err)
	}
	w.report(now)
	if !now.Before(w.poll) {
		w.poll = now.Add(c.pace.Poll)
		for i := range w.looking {
			w.look(i, a.witnesses[i].fault == noFault) // an endpoint at fault has to show the whole state
		}
	}
	order, wanted := a.wants()
	if !wanted {
		w.disagree = time.Time{}
	} else if w.disagree.IsZero() {
		w.disagree = now
	}
	if wanted || w.dirty {
		if !now.Before(w.fetch) {
			w.fetch, w.dirty = now.Add(c.pace.Fetch), false
			if w.disagree.IsZero() || now.Sub(w.disagree) < 2*c.pace.Fetch {
				order = order[:a.quorum]
			}
			for _, i := range order {
				w.look(i, false)
			}
		}
		w.prove(now)
		return min(w.fetch.Sub(now), w.poll.Sub(now))
	}
	return w.poll.Sub(now)
}

// begin reports to Dial whether the client could read the run.
func (w *watcher) begin(err error) {
	if w.first != nil {
		w.first <- err
		w.first = nil
	}
}

// refused returns an error if a quorum reports that the run does not exist.
func (w *watcher) refused() error {
	count := 0
	var reason error
	for _, err := range w.missing {
		if err != nil {
			count, reason = count+1, err
		}
	}
	if count < w.agreement.quorum {
		return nil
	}
	return reason
}

// report logs endpoints whose fault started or ended.
func (w *watcher) report(now time.Time) {
	c := w.client
	for i, found := range w.agreement.judge(now) {
		e := c.pool.Endpoints()[i]
		c.setFault(e, found)
		if found == noFault {
			c.logger.Info("the endpoint shows the state of the run again", "endpoint", e.Name())
		} else {
			c.logger.Warn("not following an endpoint", "endpoint", e.Name(), "reason", string(found))
		}
	}
}

// look reads the account or its head from an endpoint, unless a read is pending.
func (w *watcher) look(i int, headOnly bool) {
	c := w.client
	if w.looking[i] || c.pool.Endpoints()[i].Resting() {
		return
	}
	w.looking[i] = true
	c.running.Go(func() {
		o := c.lookAt(c.ctx, i, headOnly, rpc.Confirmed)
		o.answered = true
		c.tell(o)
	})
}

// lookAt reads the account, or its head, and the chain's clock from the same slot.
func (c *Client) lookAt(ctx context.Context, i int, headOnly bool, commitment rpc.Commitment) observation {
	e := c.pool.Endpoints()[i]
	o := observation{endpoint: i}
	q := rpc.Query{Commitment: commitment}
	if headOnly {
		q.Slice = &rpc.Slice{Length: layout.HeadSize}
	}
	found, slot, err := e.Accounts(ctx, []transaction.PublicKey{c.run, transaction.ClockSysvar}, q)
	now := time.Now()
	if err != nil {
		c.logger.Debug("cannot read the run", "error", err)
		return o
	}
	if o.missing = c.checkAccount(found[0]); o.missing != nil {
		return o
	}
	if found[1] != nil {
		if slot, unix, err := readClock(found[1].Data); err == nil {
			o.sample = &sample{at: now, slot: slot, unix: unix}
		}
	}
	s, err := sightingOf(found[0].Data, headOnly)
	if err != nil {
		c.logger.Debug("an endpoint shows an account that is not a run", "endpoint", e.Name(), "error", err)
		o.missing = fmt.Errorf("run %s: %w: %w", c.run, backend.ErrWrongRun, err)
		return o
	}
	s.slot = slot
	o.sighting = &s
	return o
}

// checkAccount returns an error if an account does not belong to the run.
func (c *Client) checkAccount(found *rpc.Account) error {
	if found == nil {
		return fmt.Errorf("run %s: %w: no such account; check the address and the chain of the endpoints", c.run, backend.ErrWrongRun)
	}
	if found.Owner != c.options.Program {
		return fmt.Errorf("run %s: %w: the account belongs to program %s, want %s", c.run, backend.ErrWrongRun, found.Owner, c.options.Program)
	}
	summary, err := layout.ReadSummary(found.Data)
	switch {
	case err != nil:
		return fmt.Errorf("run %s: %w: %w", c.run, backend.ErrWrongRun, err)
	case summary.RunState == coordinator.Uninitialized:
		return fmt.Errorf("run %s: %w: no genesis yet; the main authority must finish the creation", c.run, backend.ErrWrongRun)
	case c.options.RunID != "" && summary.RunID != c.options.RunID:
		return fmt.Errorf("run %s: %w: the account has run %q, want %q", c.run, backend.ErrWrongRun, summary.RunID, c.options.RunID)
	}
	return nil
}

// sightingOf parses an account or its head.
func sightingOf(data []byte, headOnly bool) (sighting, error) {
	if headOnly {
		summary, err := layout.ReadSummary(data)
		return sighting{claim: claim{summary.Sequence, summary.Head}, armed: summary.Armed, looked: true}, err
	}
	account, err := layout.ReadAccount(data)
	if err != nil {
		return sighting{}, err
	}
	return sighting{
		claim: claim{account.Sequence, account.Head}, armed: account.Armed, looked: true, account: &account,
		body: sha256.Sum256(data[layout.StateOffset : layout.StateOffset+layout.Size]),
	}, nil
}
