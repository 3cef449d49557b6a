package blob

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/p2p"
)

const (
	maxParallel = 8 // holders asked at the same time for one payload
	maxStrikes  = 3 // failures of a holder that deliver next to nothing
	// worthwhile is how much of a range makes up for the failure that ended it.
	worthwhile = 1 << 20 // bytes
	retryPause = 200 * time.Millisecond

	// A holder slower than slowRate for slowAfter loses its range to one that waits.
	slowAfter = 3 * time.Second
	slowRate  = 256 << 10 // bytes per second
	slowCheck = 500 * time.Millisecond
)

// download gets one payload. Its fields belong to the goroutine of run.
type download struct {
	node *p2p.Node
	s    *Store
	key  flightKey

	data     func() []byte  // the memory of the payload, taken when the first bytes are verified
	pending  []span         // nobody is asked for these
	waiting  []*holderState // in order of preference
	reserve  []*holderState // offenders, asked when nobody else is left
	active   map[*attempt]struct{}
	results  chan *attempt
	attempts sync.WaitGroup
	failures []HolderError
}

// holderState is what a download knows of one holder.
type holderState struct {
	id      identity.ID
	strikes int
	slow    bool      // has lost a range by being slow
	ready   time.Time // not asked before
}

// attempt is one range asked of one holder.
type attempt struct {
	holder  *holderState
	span    span
	started time.Time
	cancel  context.CancelFunc
	preempt bool // cancelled for being slow
	into    *progress
	err     error // valid when the attempt is in results
}

func newDownload(n *p2p.Node, s *Store, key flightKey, holders []identity.ID) *download {
	d := &download{
		node:    n,
		s:       s,
		key:     key,
		data:    sync.OnceValue(func() []byte { return make([]byte, key.size) }),
		active:  make(map[*attempt]struct{}),
		results: make(chan *attempt, maxParallel),
	}
	offences := s.Offences()
	for _, id := range s.order(n, holders) {
		h := &holderState{id: id}
		if offences[id] > 0 {
			d.reserve = append(d.reserve, h)
		} else {
			d.waiting = append(d.waiting, h)
		}
	}
	for offset := uint64(0); offset < key.size; offset += maxRange {
		d.pending = append(d.pending, span{offset, min(maxRange, key.size-offset)})
	}
	return d
}

// run hands ranges to holders until all are verified. It returns when no goroutine of
// the download is left.
func (d *download) run(ctx context.Context) ([]byte, error) {
	if len(d.waiting)+len(d.reserve) == 0 {
		return nil, ErrNoHolders
	}
	ctx, cancel := context.WithCancel(ctx)
	defer d.attempts.Wait()
	defer cancel()
	tick := time.NewTicker(slowCheck)
	defer tick.Stop()
	for len(d.pending)+len(d.active) > 0 {
		if len(d.waiting)+len(d.active) == 0 {
			d.waiting, d.reserve = d.reserve, nil
		}
		if len(d.waiting)+len(d.active) == 0 {
			return nil, &FetchError{Hash: d.key.hash, Failures: d.failures}
		}
		pause := d.assign(ctx)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case a := <-d.results:
			d.finish(a)
		case <-pause:
		case <-tick.C:
			d.preemptSlow()
		}
	}
	return d.data(), nil
}

// assign starts attempts while there are ranges and holders. If ranges are left only
// because holders pause, the channel says when the first of them is ready.
func (d *download) assign(ctx context.Context) <-chan time.Time {
	for len(d.pending) > 0 && len(d.active) < maxParallel {
		now := time.Now()
		i := slices.IndexFunc(d.waiting, func(h *holderState) bool { return !h.ready.After(now) })
		if i < 0 {
			break
		}
		h := d.waiting[i]
		d.waiting = slices.Delete(d.waiting, i, i+1)
		d.start(ctx, h, d.pending[0])
		d.pending = d.pending[1:]
	}
	if len(d.pending) == 0 || len(d.waiting) == 0 || len(d.active) == maxParallel {
		return nil
	}
	first := slices.MinFunc(d.waiting, func(a, b *holderState) int { return a.ready.Compare(b.ready) })
	return time.After(time.Until(first.ready))
}

func (d *download) start(ctx context.Context, h *holderState, r span) {
	ctx, cancel := context.WithCancel(ctx)
	a := &attempt{
		holder:  h,
		span:    r,
		started: time.Now(),
		cancel:  cancel,
		into:    &progress{data: d.data, span: r},
	}
	d.active[a] = struct{}{}
	d.attempts.Go(func() {
		defer cancel()
		a.err = d.transfer(ctx, a)
		d.results <- a // never blocks: it has room for every active attempt
	})
}

func (d *download) transfer(ctx context.Context, a *attempt) error {
	slot := d.s.slot(a.holder.id)
	select {
	case slot <- struct{}{}:
		defer func() { <-slot }()
	case <-ctx.Done():
		return ctx.Err()
	}
	return source{d.node, a.holder.id, d.key.hash}.read(ctx, d.key.size, a.span, a.into)
}

// finish takes an attempt's result: what was verified stays, the rest is pending again.
func (d *download) finish(a *attempt) {
	delete(d.active, a)
	done := a.into.done.Load()
	if rest := (span{a.span.offset + done, a.span.length - done}); rest.length > 0 {
		d.pending = append([]span{rest}, d.pending...)
	}
	h := a.holder
	switch {
	case a.err == nil:
		h.strikes = 0
	case a.preempt:
		h.slow = true
	case errors.Is(a.err, ErrCorrupt):
		d.s.blame(d.node, h.id, d.key.hash, a.err)
		d.failures = append(d.failures, HolderError{h.id, a.err})
		return
	case errors.Is(a.err, ErrSize):
		d.failures = append(d.failures, HolderError{h.id, a.err})
		return
	case done >= worthwhile:
		h.strikes = 0
	default:
		if h.strikes++; h.strikes == maxStrikes {
			d.failures = append(d.failures, HolderError{h.id, a.err})
			return
		}
		h.ready = time.Now().Add(retryPause << h.strikes)
	}
	d.waiting = append(d.waiting, h)
}

// preemptSlow takes ranges from slow holders when all ranges are given out and somebody
// who has not been slow himself has nothing to do. It is how a fetch survives a holder
// that died without a word, which QUIC notices only after half a minute.
func (d *download) preemptSlow() {
	if len(d.pending) > 0 {
		return
	}
	now := time.Now()
	spare := 0
	for _, h := range d.waiting {
		if !h.slow && !h.ready.After(now) {
			spare++
		}
	}
	for a := range d.active {
		if spare == 0 {
			return
		}
		age := now.Sub(a.started)
		if age < slowAfter || a.preempt || float64(a.into.done.Load()) >= age.Seconds()*slowRate {
			continue
		}
		a.preempt = true
		a.cancel()
		spare--
	}
}

// progress is where one attempt writes what it has verified; the download asks how far
// it is.
type progress struct {
	data func() []byte
	span span
	done atomic.Uint64 // bytes
}

func (p *progress) Write(b []byte) (int, error) {
	done := p.done.Load()
	n := copy(p.data()[p.span.offset+done:p.span.offset+p.span.length], b)
	p.done.Add(uint64(n))
	return n, nil
}
