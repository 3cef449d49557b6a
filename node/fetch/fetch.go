package fetch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/tally"
	"github.com/psyche-go/psyche/record/wire"
)

// Owner owns the tallies. Its methods are called in the client's loop.
type Owner interface {
	// Late reports whether a round's results are no longer useful.
	Late(t *tally.Tally) bool
	// Held is called for a result that was fetched and verified, Rejected for a result that failed
	// verification.
	Held(t *tally.Tally, s *tally.Slot, c *tally.Candidate)
	Rejected(t *tally.Tally, s *tally.Slot, reason string)
	// NoRoom is called if a result does not fit into the memory for blobs.
	NoRoom()
	// Drop drops blobs that nothing needs.
	Drop(hashes ...[32]byte)
}

// Options are the dependencies of a Fetcher.
type Options struct {
	ID    identity.ID // of this client
	Tasks *env.Tasks
	Blobs env.Blobs
	Owner Owner
	Log   *slog.Logger
	Limit int // maximum number of concurrent downloads
}

// Terms are the current limits of a run.
type Terms struct {
	Trainer    env.Trainer
	Completion time.Duration // time to complete a finished round
	Round      time.Duration // maximum duration of a round
}

// Fetcher executes a Plan.
type Fetcher struct {
	Options
	*Plan
	Rotation *Rotation // order in which peers are asked; shared by everything that asks peers

	// Received is the number of bytes of results received.
	Received uint64

	storeLoses bool      // the blob store has lost data that it should have kept
	warned     time.Time // time of the last warning about missing memory for results
}

// warnPause is the time between two warnings that there is no memory for results.
const warnPause = time.Minute

// New returns a Fetcher without downloads.
func New(o Options) *Fetcher {
	rotation := &Rotation{}
	return &Fetcher{Options: o, Plan: newPlan(o.Limit, rotation), Rotation: rotation}
}

// Fetch starts downloads of results that are announced in the open rounds and not applied. It takes
// the oldest rounds first, and within a round results without failed attempts. If all slots are
// taken, it cancels overdue downloads, so that stalling peers do not delay results of other peers.
func (f *Fetcher) Fetch(open []*tally.Tally, terms Terms) {
	now := f.Tasks.Now()
	if f.full() && now.Before(f.overdue) {
		return
	}
	wanted := f.wanted(now, open)
	if waiting := len(wanted) - (f.limit - f.flying); waiting > 0 {
		f.makeRoom(now, open, waiting, terms.Completion)
	}
	for _, w := range wanted {
		if f.full() {
			return
		}
		f.begin(w, terms, nil)
	}
}

// Take verifies a result that its trainer pushed and that has the hash and size of its
// announcement, unless the result is already held or not useful. The result then counts as held,
// like a fetched one. Take cancels a running download of the same result: over a slow link, the rest
// of the download would take as long as the push did.
func (f *Fetcher) Take(t *tally.Tally, a wire.ResultAnnouncement, payload []byte, terms Terms) {
	s := t.Find(a.Batch)
	if s == nil || terms.Trainer == nil || f.Owner.Late(t) {
		return
	}
	for _, c := range s.Candidates {
		switch {
		case c.Commitment != a.Blob:
		case c.State == tally.Announced:
			f.begin(want{Tally: t, Slot: s, Candidate: c}, terms, payload)
		case c.State == tally.Fetching:
			f.flights[c].verify = func() { f.begin(want{Tally: t, Slot: s, Candidate: c}, terms, payload) }
			f.Stop(c)
		}
	}
}

// Unread schedules new downloads of results that the blob store has lost. A store whose disk is
// full, or whose folder no longer exists, keeps nothing. From now on, results that it does not have
// after a download stay in memory.
func (f *Fetcher) Unread(t *tally.Tally, lost []*tally.Candidate, err error) {
	f.Log.Warn("the store for shared data has lost results; fetching them again; check whether its disk is full",
		"step", t.Round.Step, "results", len(lost), "err", err)
	f.storeLoses = true
	now := f.Tasks.Now()
	t.Lost(lost, func(c *tally.Candidate) time.Time { return now.Add(Backoff(c.Attempts)) })
}

// useful returns how long a result of the round can be useful: until the round has to be complete.
func (f *Fetcher) useful(t *tally.Tally, terms Terms) time.Duration {
	switch {
	case !t.Final:
		return terms.Completion + terms.Round
	case !t.MissingSince.IsZero():
		return max(terms.Completion-f.Tasks.Now().Sub(t.MissingSince), minTimeout)
	}
	return terms.Completion
}

// begin fetches and verifies one result. If brought is not nil, it is the result, which only has to
// be verified.
func (f *Fetcher) begin(w want, terms Terms, brought []byte) {
	t, s, c := w.Tally, w.Slot, w.Candidate
	limit := terms.Trainer.MaxResultSize()
	if uint64(c.Size) > uint64(limit) && !c.Disputed {
		t.Refuse(c)
		f.Owner.Rejected(t, s, fmt.Sprintf("result of %d bytes, want at most %d", c.Size, limit))
		return
	}
	t.Fetch(c)
	fetch, size := f.Blobs.Fetch, uint64(c.Size)
	if c.Disputed {
		fetch, size = f.Blobs.FetchUpTo, uint64(limit)
	}
	var holders []identity.ID
	if brought == nil {
		holders = f.holders(f.ID, w)
	} else {
		fetch = func(context.Context, [32]byte, uint64, []identity.ID) ([]byte, error) {
			_, err := f.Blobs.Keep(brought)
			return brought, err
		}
	}
	step, suspect := t.Round.Step, f.storeLoses
	begun := f.Tasks.Now()
	ctx, stop := f.Tasks.WithTimeout(f.Tasks.Work, f.useful(t, terms))
	f.take(c, stop, begun.Add(f.timeout(size, c.Attempts, terms.Completion)))
	f.Tasks.Spawn(func(context.Context) func() {
		defer stop()
		payload, err := fetch(ctx, c.Commitment, size, holders)
		took := f.Tasks.Now().Sub(begun)
		var invalid error
		kept := true
		if err == nil {
			invalid = terms.Trainer.Verify(payload, step, s.Batch, s.Owner)
			if suspect {
				_, lost := f.Blobs.Fetch(ctx, c.Commitment, uint64(len(payload)), nil)
				kept = lost == nil
			}
		}
		return func() {
			if err == nil {
				c.Took = max(f.Tasks.Now().Sub(begun), 1)
			}
			if err == nil && brought == nil { // a pushed result shows nothing about the speed of peers
				f.measure(len(payload), took)
			}
			if errors.Is(err, env.ErrNoRoom) {
				f.warnOfMemory(t, c, terms.Trainer.ApplyLag())
			}
			f.fetched(t, s, c, payload, err, invalid)
			if !kept && c.State == tally.Held {
				c.Payload = payload
			}
		}
	})
}

// fetched handles the result of a fetch.
func (f *Fetcher) fetched(t *tally.Tally, s *tally.Slot, c *tally.Candidate, payload []byte, err, invalid error) {
	verify := f.flights[c].verify
	f.land(c)
	from := identity.ID(s.Owner)
	noRoom := errors.Is(err, env.ErrNoRoom)
	if noRoom {
		f.Owner.NoRoom()
	}
	if !s.Contains(c) { // another result has displaced it in the meantime
		if err == nil {
			f.Owner.Drop(c.Commitment)
		}
		return
	}
	t.NoRoom(c, noRoom)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			f.stalls[from]++
		}
		t.Retry(c, f.Tasks.Now().Add(Backoff(c.Attempts)))
		if verify != nil && !f.Owner.Late(t) {
			verify()
			return
		}
		f.Log.Debug("fetch result", "step", t.Round.Step, "batch", s.Batch, "from", from.Short(), "attempt", c.Attempts, "err", err)
		return
	}
	f.Received += uint64(len(payload))
	switch {
	case f.Owner.Late(t):
		t.Refuse(c)
		f.Owner.Drop(c.Commitment)
	case invalid != nil:
		t.Refuse(c)
		f.Owner.Drop(c.Commitment)
		f.Owner.Rejected(t, s, invalid.Error())
	default:
		t.Hold(s, c, uint32(len(payload))) // its trainer may have announced another size
		f.Owner.Held(t, s, c)
	}
}

// warnOfMemory warns, at most once in warnPause, that the memory for blobs is too small, and names
// the minimum: the results of the rounds that wait to be applied, of one decided round and of one
// running round.
func (f *Fetcher) warnOfMemory(t *tally.Tally, c *tally.Candidate, lag uint32) {
	now := f.Tasks.Now()
	if now.Sub(f.warned) < warnPause {
		return
	}
	f.warned = now
	minimum := uint64(len(t.Slots)) * uint64(c.Size) * uint64(lag+2)
	f.Log.Warn("no memory for a result of another member; rounds wait for it and lose batches until memory is free",
		"step", t.Round.Step, "result_bytes", c.Size, "results", len(t.Slots),
		"remedy", fmt.Sprintf("set --max-blob-memory to at least %d MiB, or set --blob-dir to keep on disk what does not fit into memory", minimum>>20+1))
}

// Read reads the counted results from the blob store, which may have them on disk. If they were
// kept in memory until then, large results of several rounds would take more memory than the store
// may use. Read returns the candidates that cannot be read, and the error of the last of them.
func Read(ctx context.Context, blobs env.Blobs, sources []*tally.Candidate) (payloads [][]byte, lost []*tally.Candidate, err error) {
	payloads = make([][]byte, len(sources))
	for i, c := range sources {
		if payloads[i] = c.Payload; c.Payload != nil {
			continue
		}
		var missing error
		if payloads[i], missing = blobs.Fetch(ctx, c.Commitment, uint64(c.Size), nil); missing != nil {
			lost, err = append(lost, c), fmt.Errorf("read a result of %d bytes: %w", c.Size, missing)
		}
	}
	if err != nil {
		return nil, lost, err
	}
	return payloads, nil, nil
}
