package blob

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p"
)

const (
	maxParallel = 12 // ranges of one payload that are on their way
	perHolder   = 2  // of them from one holder: one waits while the other is sent
	maxStrikes  = 3  // failures of a holder that its deliveries do not make up for
	// worthwhile is how much has to be delivered for one failure more.
	worthwhile = 8 << 20 // bytes
	retryPause = 200 * time.Millisecond

	// A holder that is busy is asked again: that others fetch from it too is no failure. It
	// may be so maxBusy times, and once more for each busyWorth that it delivered.
	maxBusy   = 16
	busyWorth = 1 << 20 // bytes
	busyPause = time.Second
	// maxHangUps is how often a holder may hang up one after the other: then it is asked on
	// streams, where a hang-up without word that it is busy is a failure.
	maxHangUps = 4

	watchEvery = 100 * time.Millisecond
	// slowGrace is how long a range may take whatever others do.
	slowGrace = time.Second
	// slowShare is how many times slower than another holder one must be to lose its
	// range.
	slowShare = 8
	// stallTime is how long a holder may send nothing; a lone one, to whom there is no
	// alternative, has loneTime.
	stallTime = 3 * time.Second
	loneTime  = 10 * time.Second
	// lackPause is the time after which one that did not have a payload is asked whether it has it by now, while somebody
	// else is waited for; it doubles up to maxLackPause.
	lackPause    = 2 * time.Second
	maxLackPause = 8 * time.Second
	// crawlRate is the lowest rate of an honest member, in bytes per second: its link has 0.25 Mbit/s, and 120 members
	// fetch from it.
	crawlRate = 256
	// unsureRate is in bytes per second. A range that arrives more slowly moves to an idle holder of unknown rate.
	unsureRate = 64 << 10
)

// download gets one payload. Its fields belong to the goroutine of run.
type download struct {
	node *p2p.Node
	s    *Store
	into *partial

	pending  []span // nobody is asked for these
	holders  []*holderState
	active   map[*attempt]struct{}
	results  chan *attempt
	looks    chan look
	attempts sync.WaitGroup // and looks
	failures []holderError
}

// holderState is what a download knows of one holder.
type holderState struct {
	id        identity.ID
	active    int
	strikes   int
	busy      int // times that it had no room, or hung up
	hangUps   int // of them one after the other
	delivered uint64
	slow      bool      // lost a range by being slow
	silent    bool      // lost a range of which nothing came
	ready     time.Time // not asked before
	out       bool      // asked no more
	lacks     bool      // as it did not have the payload
	looking   bool      // it is asked whether it has it by now
	looks     int       // that it was
	later     bool      // it had it then
}

// look is whether a holder that did not have the payload has it by now.
type look struct {
	holder *holderState
	found  bool
}

// attempt is one range asked of one holder.
type attempt struct {
	holder  *holderState
	span    span
	started time.Time
	bulk    bool // asked on a connection of its own
	cancel  context.CancelCauseFunc
	asked   atomic.Int64  // nanoseconds from started until the request was on its way; 0: not yet
	arrived atomic.Uint64 // bytes of the response, verified or not
	done    atomic.Uint64 // bytes verified
	waited  time.Duration // for the first of them; 0: none came. Valid when the attempt is in results
	moved   time.Time     // when it was asked, or arrived was last seen to grow; the download's
	first   time.Time     // when arrived was first seen to have grown; the download's
	seen    uint64        // bytes that had arrived then; the download's
	err     error         // valid when the attempt is in results
}

func newDownload(n *p2p.Node, s *Store, into *partial, holders []identity.ID) *download {
	d := &download{
		node:    n,
		s:       s,
		into:    into,
		pending: into.missing,
		active:  make(map[*attempt]struct{}),
		results: make(chan *attempt, maxParallel),
	}
	for _, id := range eligible(n, holders) {
		d.holders = append(d.holders, &holderState{id: id})
	}
	d.looks = make(chan look, len(d.holders))
	return d
}

// run hands ranges to holders until all are verified; what is not stays in the partial. It
// returns when no goroutine of the download is left.
func (d *download) run(ctx context.Context) error {
	if len(d.holders) == 0 && len(d.pending) > 0 {
		return errNoHolders
	}
	ctx, cancel := context.WithCancel(ctx)
	defer d.collect()
	defer cancel()
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for len(d.pending)+len(d.active) > 0 {
		if len(d.active) == 0 && !slices.ContainsFunc(d.holders, func(h *holderState) bool { return !h.out }) {
			return &fetchError{Hash: d.into.key.hash, Failures: d.failures}
		}
		freed := d.s.holders.waitFreed()
		d.assign(ctx)
		if len(d.pending) == 0 {
			freed = nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case a := <-d.results:
			d.finish(a)
		case l := <-d.looks:
			l.holder.looked(l.found)
		case <-freed:
		case <-tick.C:
			d.watch()
			d.lookAgain(ctx)
		}
	}
	return nil
}

// collect waits for the attempts and notes what they got.
func (d *download) collect() {
	d.attempts.Wait()
	for len(d.active) > 0 {
		a := <-d.results
		delete(d.active, a)
		d.requeue(a)
	}
	d.into.missing = d.pending
}

// requeue makes the part of a range that was not verified pending again.
func (d *download) requeue(a *attempt) {
	done := a.done.Load()
	if rest := (span{a.span.offset + done, a.span.length - done}); rest.length > 0 {
		d.pending = slices.Insert(d.pending, 0, rest)
	}
}

// assign starts attempts while there are ranges and holders with a free stream.
func (d *download) assign(ctx context.Context) {
	for len(d.pending) > 0 && len(d.active) < maxParallel {
		h := d.choose()
		if h == nil {
			return
		}
		part := d.pending[0]
		d.pending = slices.Delete(d.pending, 0, 1)
		d.start(ctx, h, part)
	}
}

// isLate reports whether a holder is asked only when nobody else is left.
func (h *holderState) isLate() bool { return h.slow || h.silent }

// choose takes a stream of the best holder that has one free. The late ones get a range
// only when nobody else works.
func (d *download) choose() *holderState {
	now := time.Now()
	var free []identity.ID
	states := make(map[identity.ID]*holderState)
	for _, late := range []bool{false, true} {
		for _, h := range d.holders {
			if !h.out && h.isLate() == late && h.active < perHolder && !now.Before(h.ready) {
				free = append(free, h.id)
				states[h.id] = h
			}
		}
		if len(free) > 0 || slices.ContainsFunc(d.holders, func(h *holderState) bool { return !h.isLate() && h.active > 0 }) {
			break
		}
	}
	for _, id := range d.s.holders.order(d.node, free) {
		if d.s.holders.acquire(d.node, id) {
			return states[id]
		}
	}
	return nil
}

func (d *download) start(ctx context.Context, h *holderState, part span) {
	ctx, cancel := context.WithCancelCause(ctx)
	now := time.Now()
	a := &attempt{holder: h, span: part, started: now, moved: now, cancel: cancel}
	a.bulk = h.hangUps < maxHangUps && (part.length >= bulkSize || part.length >= slowSize && d.s.holders.slow(h.id, part.length))
	d.active[a] = struct{}{}
	h.active++
	d.attempts.Go(func() {
		defer cancel(nil)
		a.err = d.transfer(ctx, a)
		took := delivery{bytes: a.done.Load(), waited: a.waited, took: time.Since(a.started)}
		took.silent = took.bytes == 0 && (errors.Is(a.err, errPreempted) || errors.Is(a.err, errSlow))
		d.s.holders.release(d.node, h.id, took)
		d.results <- a // never blocks: it has room for every active attempt
	})
}

// transfer runs in a goroutine of its own and uses nothing of the download that changes.
func (d *download) transfer(ctx context.Context, a *attempt) error {
	p := d.into
	written := uint64(0)
	note := func() {
		done := a.done.Load()
		p.persist(span{a.span.offset + written, done - written})
		written = done
	}
	defer note()
	from := source{
		node: d.node, holder: a.holder.id, hash: p.key.hash, bulk: a.bulk,
		asked:   func() { a.asked.Store(max(int64(time.Since(a.started)), 1)) },
		arrived: func(n int) { a.arrived.Add(uint64(n)) },
	}
	return from.read(ctx, p.key.size, a.span,
		func() []byte { return p.buffer()[a.span.offset:a.span.end()] },
		func(n int) error {
			if a.waited == 0 {
				a.waited = max(time.Since(a.started), 1)
			}
			if a.done.Add(uint64(n))-written >= persistSize {
				note()
			}
			return nil
		})
}

// finish takes an attempt's result: what was verified stays, the rest is pending again.
func (d *download) finish(a *attempt) {
	delete(d.active, a)
	d.requeue(a)
	h := a.holder
	h.active--
	h.delivered += a.done.Load()
	if a.err == nil {
		h.hangUps = 0
		return
	}
	hungUp := errors.Is(a.err, p2p.ErrHungUp)
	if hungUp {
		h.hangUps++
	}
	switch {
	case errors.Is(a.err, errCorrupt):
		d.node.Penalise(h.id, p2p.FaultWrongBytes, "blob "+d.into.key.hash.Short())
		d.lose(h, a.err)
		return
	case errors.Is(a.err, errSize):
		d.lose(h, a.err)
		return
	case errors.Is(a.err, errPreempted): // no failure: it comes only as often as somebody who is faster may yet fail
		if a.done.Load() > 0 {
			h.slow = true
		} else {
			h.silent = true
		}
		h.ready = time.Now().Add(retryPause)
		return
	case hungUp, errors.Is(a.err, p2p.ErrBusy):
		if h.busy++; h.busy >= maxBusy+int(h.delivered/busyWorth) {
			d.lose(h, a.err)
		}
		h.ready = time.Now().Add(busyPause)
		return
	}
	// Failures are never forgotten, only outweighed: a holder that fails for ever ends.
	if h.strikes++; h.strikes >= maxStrikes+int(h.delivered/worthwhile) {
		d.lose(h, a.err)
		return
	}
	h.ready = time.Now().Add(retryPause << min(h.strikes, 5))
}

// lose asks a holder no more.
func (d *download) lose(h *holderState, err error) {
	if h.out {
		return
	}
	h.out, h.lacks = true, errors.Is(err, ErrNotHeld) && !h.later // who said to have it later, and had it not, is done with
	h.ready = time.Now().Add(lackPause)
	d.failures = append(d.failures, holderError{h.id, err})
	d.cancel(h, err)
}

// cancel ends all attempts with a holder: its other range would not end better.
func (d *download) cancel(h *holderState, err error) {
	for a := range d.active {
		if a.holder == h {
			a.cancel(err)
		}
	}
}

// lookAgain asks holders that did not have the payload whether they have it by now, while others are waited for: those
// may be slow, or give it to some members only, who then have it.
func (d *download) lookAgain(ctx context.Context) {
	now := time.Now()
	for _, h := range d.holders {
		if !h.lacks || h.looking || now.Before(h.ready) || !d.s.holders.acquire(d.node, h.id) {
			continue
		}
		h.looking = true
		from := source{node: d.node, holder: h.id, hash: d.into.key.hash}
		d.attempts.Go(func() {
			size, err := probe(ctx, from)
			d.s.holders.release(d.node, h.id, delivery{})
			d.looks <- look{h, err == nil && size == d.into.key.size} // never blocks: it has room for every holder
		})
	}
}

func (h *holderState) looked(found bool) {
	h.looking = false
	if found {
		h.out, h.lacks, h.later, h.strikes = false, false, true, 0
		return
	}
	h.looks++
	h.ready = time.Now().Add(min(lackPause<<min(h.looks, 8), maxLackPause))
}

// errPreempted is why an attempt was cancelled whose range somebody else gets faster.
var errPreempted = errors.New("another holder is faster")

// watch takes ranges from holders that stand still or that are much slower than another
// one that has a stream free. It is how a fetch survives a holder that died without a
// word, which QUIC notices only after half a minute, and one that sends a byte a second.
func (d *download) watch() {
	now := time.Now()
	for a := range d.active {
		// A group of 16 KiB takes long on a link that many members share, so arrived counts and not done.
		if arrived := a.arrived.Load(); arrived > a.seen {
			if a.seen == 0 {
				a.first = now
			}
			a.seen, a.moved = arrived, now
		} else if a.seen == 0 {
			a.moved = a.started.Add(time.Duration(a.asked.Load()))
		}
	}
	for a := range d.active {
		age, still := now.Sub(a.started), now.Sub(a.moved)
		if d.isSilent(a, still) {
			a.cancel(errPreempted) // it is not blamed: it may be far away, or have much to send
			continue
		}
		if age < slowGrace {
			continue
		}
		other := d.fastest(a.holder, false)
		switch {
		case other != nil && other.later && still >= slowGrace:
			a.cancel(errPreempted) // it may send to many
		case still >= d.s.lone, age >= d.s.lone && float64(a.seen) < crawlRate*age.Seconds(), other != nil && still >= stallTime:
			if d.node.Reaches(a.holder.id) { // else it may be the relay that stands still, or the member has gone
				d.node.Penalise(a.holder.id, p2p.FaultStall, "blob "+d.into.key.hash.Short())
			}
			a.holder.slow = true
			a.cancel(errSlow)
		case d.gains(a, now.Sub(a.first), d.fastest(a.holder, !a.holder.slow)):
			d.cancel(a.holder, errPreempted)
		}
	}
}

// isSilent reports whether nothing of a range has come for longer than holders take as a rule, since it was asked for, and there is
// another one that was not silent and could be asked in its place. A connection of its own takes four ways through the line
// before anything can be asked: that is no silence. The one that was silent is asked again when nobody
// else is left, and then may take its time.
func (d *download) isSilent(a *attempt, still time.Duration) bool {
	return a.seen == 0 && !a.holder.isLate() && a.asked.Load() > 0 && still >= d.s.holders.answerTimeout() &&
		slices.ContainsFunc(d.holders, func(h *holderState) bool { return h != a.holder && !h.out && !h.silent })
}

// fastest returns the best other holder that could take a range, now or after its own; of late ones only if they count. They count
// for who sends, but has lost nothing by being slow: a cheat could send as little as it likes else, once others were silent for a moment.
func (d *download) fastest(but *holderState, late bool) *holderState {
	var best *holderState
	for _, h := range d.holders {
		if h == but || h.out || h.isLate() && !late {
			continue
		}
		if best == nil || d.s.holders.rate(h.id) > d.s.holders.rate(best.id) {
			best = h
		}
	}
	return best
}

// gains reports whether the rest of a range would be here much sooner from another holder, if there is one:
// one known to be many times faster, or one that is idle, and gets no other range.
// Bytes have been coming for so long: the time before is that of the line, and of a connection's handshake.
func (d *download) gains(a *attempt, coming time.Duration, other *holderState) bool {
	if other == nil || a.seen == 0 || coming < slowGrace {
		return false // it may only be far away, or busy; watch ends it when it takes too long
	}
	rate, theirs := float64(a.seen)/coming.Seconds(), d.s.holders.rate(other.id)
	idle := other.active == 0 && (len(d.pending) == 0 || other.isLate())
	if theirs == 0 {
		return idle && rate < unsureRate // its rate is unknown; below unsureRate it is worth a try
	}
	rest := float64(a.span.length - a.done.Load())
	return rate*slowShare < theirs || idle && rest/max(rate, 1) > 2*rest/theirs+slowGrace.Seconds()
}
