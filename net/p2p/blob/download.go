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
	maxParallel = 12 // concurrent ranges of one payload
	perHolder   = 2  // concurrent ranges of one holder, so that one is already requested while the other is sent
	maxStrikes  = 3  // failures after which a holder is dropped; its deliveries permit more (worthwhile)
	// worthwhile is the number of delivered bytes that outweigh one failure.
	worthwhile = 8 << 20 // bytes
	retryPause = 200 * time.Millisecond

	// A busy holder is asked again, because it may be serving other members, which is not a failure.
	// It may be busy maxBusy times, and once more for each busyWorth bytes that it has delivered.
	maxBusy   = 16
	busyWorth = 1 << 20 // bytes
	busyPause = time.Second
	// maxHangUps is how often in a row a holder may hang up on bulk connections. Afterwards the
	// download uses ordinary streams. On a stream a holder can report that it is busy, so hanging up
	// counts as a failure.
	maxHangUps = 4

	watchEvery = 100 * time.Millisecond
	// slowGrace is the time that every range may take, however slow its holder is.
	slowGrace = time.Second
	// slowShare is the speed ratio at which another holder takes over a range.
	slowShare = 8
	// stallTime is how long a holder may send nothing if the payload has another holder. Otherwise
	// it may take loneTime.
	stallTime = 3 * time.Second
	loneTime  = 10 * time.Second
	// lackPause is the pause before a holder that did not have the payload is asked again, while the
	// download waits for other holders. It doubles with each attempt, up to maxLackPause.
	lackPause    = 2 * time.Second
	maxLackPause = 8 * time.Second
	// crawlRate is the lowest rate of an honest member, in bytes per second: its link has 0.25
	// Mbit/s, and 120 members fetch from it.
	crawlRate = 256
	// unsureRate is a rate in bytes per second. A range that arrives more slowly moves to an idle
	// holder whose rate is unknown.
	unsureRate = 64 << 10
)

// download gets one payload. Its fields belong to the goroutine of run.
type download struct {
	node *p2p.Node
	s    *Store
	into *partial

	pending  []span // not assigned to a holder
	holders  []*holderState
	active   map[*attempt]struct{}
	results  chan *attempt
	looks    chan look
	attempts sync.WaitGroup // goroutines of attempts and looks
	failures []holderError
}

// holderState is the state of one holder in a download.
type holderState struct {
	id        identity.ID
	active    int
	strikes   int
	busy      int // number of times that the holder had no capacity, or hung up
	hangUps   int // consecutive times that the holder hung up
	delivered uint64
	slow      bool      // lost a range because it was slow
	silent    bool      // lost a range because it sent nothing
	ready     time.Time // earliest time of the next request
	out       bool      // the holder is not asked any more
	lacks     bool      // out because the holder did not have the payload
	looking   bool      // being asked whether it has the payload now
	looks     int       // number of times that the holder was asked again
	later     bool      // when asked again, the holder had the payload
}

// look is the answer to whether a holder that did not have the payload has it now.
type look struct {
	holder *holderState
	found  bool
}

// attempt is a request for one range to one holder.
type attempt struct {
	holder         *holderState
	span           span
	started        time.Time
	bulk           bool // on a bulk connection
	cancel         context.CancelCauseFunc
	requestedAfter atomic.Int64  // nanoseconds from started until the request was sent; 0: not yet
	arrived        atomic.Uint64 // bytes of the response, verified or not
	done           atomic.Uint64 // bytes verified
	waited         time.Duration // wait for the first byte; 0: none came. Valid when the attempt is in results
	moved          time.Time     // when the request was sent, or when arrived last grew; owned by the download
	first          time.Time     // when arrived first grew; owned by the download
	seen           uint64        // value of arrived at the last check; owned by the download
	err            error         // valid when the attempt is in results
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

// run assigns ranges to holders until all are verified. Unverified ranges stay in the partial. It
// returns when all goroutines of the download have ended.
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

// collect waits for the attempts and processes their results.
func (d *download) collect() {
	d.attempts.Wait()
	for len(d.active) > 0 {
		a := <-d.results
		delete(d.active, a)
		d.requeue(a)
	}
	d.into.missing = d.pending
}

// requeue makes the unverified part of a range pending again.
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

// isLate reports whether the holder is asked only if no better holder is left.
func (h *holderState) isLate() bool { return h.slow || h.silent }

// choose takes a stream of the best holder that has one free. Late holders (isLate) get a range only
// if no other holder is working.
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
		d.results <- a // does not block: the buffer has space for every active attempt
	})
}

// transfer runs in its own goroutine and does not use mutable fields of the download.
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
		asked:   func() { a.requestedAfter.Store(max(int64(time.Since(a.started)), 1)) },
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

// finish processes an attempt's result: verified data stays, the rest becomes pending again.
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
		d.node.Penalise(h.id, p2p.FaultWrongBytes, "blob "+d.into.key.hash.short())
		d.lose(h, a.err)
		return
	case errors.Is(a.err, errSize):
		d.lose(h, a.err)
		return
	case errors.Is(a.err, errPreempted): // not a failure. It happens at most as often as the faster holder may fail
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
	// Failures are never forgotten, only outweighed, so a holder that always fails is dropped.
	if h.strikes++; h.strikes >= maxStrikes+int(h.delivered/worthwhile) {
		d.lose(h, a.err)
		return
	}
	h.ready = time.Now().Add(retryPause << min(h.strikes, 5))
}

// lose stops asking a holder.
func (d *download) lose(h *holderState, err error) {
	if h.out {
		return
	}
	h.out, h.lacks = true, errors.Is(err, ErrNotHeld) && !h.later // a holder that claimed to have the payload now, but did not deliver it, is not asked again
	h.ready = time.Now().Add(lackPause)
	d.failures = append(d.failures, holderError{h.id, err})
	d.cancel(h, err)
}

// cancel ends all attempts with a holder, because its other range would fail for the same reason.
func (d *download) cancel(h *holderState, err error) {
	for a := range d.active {
		if a.holder == h {
			a.cancel(err)
		}
	}
}

// lookAgain asks holders that did not have the payload whether they have it now, while the download
// waits for other holders. A slow or malicious holder may have sent the payload to some members
// only, and these members can then deliver it.
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
			d.looks <- look{h, err == nil && size == d.into.key.size} // does not block: the buffer has space for every holder
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

// errPreempted is the cause of cancelling an attempt whose range another holder delivers faster.
var errPreempted = errors.New("another holder is faster")

// watch cancels ranges of holders that stall, or that are much slower than another holder with a
// free stream. Therefore a fetch survives a holder that died silently, which QUIC notices only after
// half a minute, and a holder that sends one byte a second.
func (d *download) watch() {
	now := time.Now()
	for a := range d.active {
		// A group of 16 KiB takes long on a link that many members share, so arrived counts instead
		// of done.
		if arrived := a.arrived.Load(); arrived > a.seen {
			if a.seen == 0 {
				a.first = now
			}
			a.seen, a.moved = arrived, now
		} else if a.seen == 0 {
			a.moved = a.started.Add(time.Duration(a.requestedAfter.Load()))
		}
	}
	for a := range d.active {
		age, still := now.Sub(a.started), now.Sub(a.moved)
		if d.isSilent(a, still) {
			a.cancel(errPreempted) // without a penalty: the holder may be far away, or have much to send
			continue
		}
		if age < slowGrace {
			continue
		}
		other := d.fastest(a.holder, false)
		switch {
		case other != nil && other.later && still >= slowGrace:
			a.cancel(errPreempted) // without a penalty: the holder may be sending to many members
		case still >= d.s.lone, age >= d.s.lone && float64(a.seen) < crawlRate*age.Seconds(), other != nil && still >= stallTime:
			if d.node.Reaches(a.holder.id) { // otherwise the relay may be at fault, or the member may have left
				d.node.Penalise(a.holder.id, p2p.FaultStall, "blob "+d.into.key.hash.short())
			}
			a.holder.slow = true
			a.cancel(errSlow)
		case d.gains(a, now.Sub(a.first), d.fastest(a.holder, !a.holder.slow)):
			d.cancel(a.holder, errPreempted)
		}
	}
}

// isSilent reports whether no byte of a range has come for longer than holders usually take, and
// another holder that was not silent could be asked instead. The four one-way trips that a bulk
// connection needs before it can send a request do not count as silence. A holder that was silent is
// asked again if no other is left, and then has more time.
func (d *download) isSilent(a *attempt, still time.Duration) bool {
	return a.seen == 0 && !a.holder.isLate() && a.requestedAfter.Load() > 0 && still >= d.s.holders.answerTimeout() &&
		slices.ContainsFunc(d.holders, func(h *holderState) bool { return h != a.holder && !h.out && !h.silent })
}

// fastest returns the best other holder that could take a range, now or after its own range. Late
// holders count only if late is true. The caller sets late for a holder that sends and has not lost
// a range by being slow. Otherwise a malicious holder could send as slowly as it likes once all
// other holders had been silent for a moment.
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

// gains reports whether the rest of a range would arrive much sooner from the other holder, if there
// is one: because it is known to be many times faster, or because it is idle and has no other range
// to fetch. coming is the time since the first byte of the range. The time before that byte is not
// counted, because it depends on the link and on the handshake of a connection.
func (d *download) gains(a *attempt, coming time.Duration, other *holderState) bool {
	if other == nil || a.seen == 0 || coming < slowGrace {
		return false // the holder may only be far away, or busy; watch cancels the range if it takes too long
	}
	rate, theirs := float64(a.seen)/coming.Seconds(), d.s.holders.rate(other.id)
	idle := other.active == 0 && (len(d.pending) == 0 || other.isLate())
	if theirs == 0 {
		return idle && rate < unsureRate // the other holder's rate is unknown, but it is worth a try if this rate is below unsureRate
	}
	rest := float64(a.span.length - a.done.Load())
	return rate*slowShare < theirs || idle && rest/max(rate, 1) > 2*rest/theirs+slowGrace.Seconds()
}
