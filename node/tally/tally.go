package tally

import (
	"slices"
	"sort"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// MaxCandidates is the maximum number of results of one batch that are kept while the round runs. An
// honest trainer sends one result, and two results prove that a trainer is dishonest. After the
// round, one more result is kept for each witness.
const MaxCandidates = 2

// State is the state of a result at this client.
type State uint8

// States of a result.
const (
	Announced State = iota // known by its hash
	Fetching               // its blob is on the way
	Held                   // fetched and verified
	Refused                // its blob is not a valid result, or is no longer useful
)

// Candidate is one announced result of a batch.
type Candidate struct {
	Commitment Commitment
	Size       uint32
	Replica    [32]byte
	InTime     bool  // received while the round ran
	State      State // changed by the methods of Tally
	Payload    []byte
	Attempts   int // number of attempts to fetch it
	RetryAt    time.Time
	Disputed   bool          // its trainer signed several sizes, so Size is not reliable
	Took       time.Duration // time to fetch and verify it; 0: it was made here

	raw     []byte // the signed announcement
	votes   int    // number of the round's witnesses that hold it, once counted
	polled  bool
	fetched bool // a fetch was tried
	noRoom  bool // the last attempt failed for lack of memory
}

// Announcement returns the signed announcement of the result.
func (c *Candidate) Announcement() []byte { return c.raw }

// Slot contains the known results of one batch.
type Slot struct {
	Batch      assign.BatchID
	Owner      coordinator.ClientID
	Vote       uint8 // of its result, from 1 to assign.FullVote
	Warming    bool  // the owner's optimizer is too young for its result to count
	Candidates []*Candidate

	// OptimizerSince is the first step that the owner's optimizer state includes, as the run knew
	// it when this client first saw the round; zero: unknown. A value after the round's step is
	// meaningless for the round.
	OptimizerSince uint32

	changed bool // the announcements that peers can request are out of date
}

// Tally contains everything known about one round. Only one goroutine may use it.
type Tally struct {
	Round      coordinator.Round // newest known state of the round; Witnesses may grow until Final
	Final      bool              // the round is over, and no witness can be added
	EpochStart uint32            // first step of the round's epoch
	Slots      []Slot            // in ascending order of batches
	Replica    [32]byte          // this client's replica hash at the start of the round; valid if Began
	Began      bool

	// MissingSince is the time when the finished round was first found to lack results; zero: not
	// yet.
	MissingSince time.Time

	newest    *Candidate // newest held candidate
	changes   int        // number of changes to known and held results; Decide depends on these and the witnesses only
	unfetched int        // candidates in state Announced
	changed   bool
	displaced []*Candidate
	judged    judgement
	voices    voices
}

// New returns the tally of a round. Members without a batch have no slot.
func New(round coordinator.Round, epochStart uint32, assignments []assign.Assignment) *Tally {
	t := &Tally{Round: round, EpochStart: epochStart, Slots: make([]Slot, 0, len(assignments))}
	for _, a := range assignments {
		t.Slots = append(t.Slots, Slot{Batch: a.Batch, Owner: round.Members[a.Member], Vote: a.Vote, Warming: round.Warming.Has(a.Member)})
	}
	return t
}

// Renew updates the round from a newer state. final reports whether the round is over.
func (t *Tally) Renew(round coordinator.Round, final bool) {
	if !slices.Equal(t.Round.Witnesses, round.Witnesses) {
		for i := range t.Slots {
			for _, c := range t.Slots[i].Candidates {
				c.polled = false
			}
		}
	}
	t.Round, t.Final = round, final
}

// Begin sets this client's replica hash at the start of the round. Only results that were made from
// this replica can be held.
func (t *Tally) Begin(replica [32]byte) {
	t.Replica, t.Began = replica, true
	t.changes++
}

// Find returns the slot of a batch, or nil.
func (t *Tally) Find(batch assign.BatchID) *Slot {
	i := sort.Search(len(t.Slots), func(i int) bool { return t.Slots[i].Batch.Start >= batch.Start })
	if i == len(t.Slots) || t.Slots[i].Batch != batch {
		return nil
	}
	return &t.Slots[i]
}

// Own returns the slot of a client, or nil if it got no batch.
func (t *Tally) Own(id identity.ID) *Slot {
	for i := range t.Slots {
		if t.Slots[i].Owner == coordinator.ClientID(id) {
			return &t.Slots[i]
		}
	}
	return nil
}

// Newest returns the result that was held last, or nil.
func (t *Tally) Newest() *Candidate { return t.newest }

// Unfetched returns the number of known results that are neither held nor being fetched.
func (t *Tally) Unfetched() int { return t.unfetched }

// each calls do for every candidate, in the order of batches.
func (t *Tally) each(do func(s *Slot, c *Candidate)) {
	for i := range t.Slots {
		for _, c := range t.Slots[i].Candidates {
			do(&t.Slots[i], c)
		}
	}
}

// set changes the state of a candidate of a slot.
func (t *Tally) set(c *Candidate, state State) {
	switch {
	case c.State == Announced && state != Announced:
		t.unfetched--
	case c.State != Announced && state == Announced:
		t.unfetched++
	}
	c.State = state
}

// Fetch records that a result is being fetched.
func (t *Tally) Fetch(c *Candidate) {
	c.fetched = true
	t.set(c, Fetching)
}

// Hold records that a result was fetched and verified. size is its actual size in bytes.
func (t *Tally) Hold(s *Slot, c *Candidate, size uint32) {
	t.set(c, Held)
	t.newest = c
	c.Size = size
	t.changes++
	if len(s.Candidates) > 1 { // it may be preferred now
		s.changed, t.changed = true, true
	}
}

// Refuse records that a result is invalid or no longer useful.
func (t *Tally) Refuse(c *Candidate) { t.set(c, Refused) }

// Retry records that a result did not arrive, and the time from which it may be fetched again.
func (t *Tally) Retry(c *Candidate, at time.Time) {
	t.set(c, Announced)
	c.RetryAt = at
	c.Attempts++
}

// NoRoom records whether the last attempt to fetch a result failed for lack of memory.
func (t *Tally) NoRoom(c *Candidate, noRoom bool) {
	if c.noRoom != noRoom {
		c.noRoom = noRoom
		t.changes++
	}
}

// Lost records that held results cannot be read any more. retry returns the time from which each
// may be fetched again.
func (t *Tally) Lost(lost []*Candidate, retry func(c *Candidate) time.Time) {
	t.each(func(_ *Slot, c *Candidate) {
		if slices.Contains(lost, c) {
			t.Retry(c, retry(c))
		}
	})
	t.changes++
}

// Contains reports whether a candidate is still in its slot.
func (s *Slot) Contains(c *Candidate) bool { return slices.Contains(s.Candidates, c) }

// Release drops the payloads of an applied round. It refuses the held results that did not count,
// and returns their commitments.
func (t *Tally) Release(o Outcome) (others []Commitment) {
	t.each(func(_ *Slot, c *Candidate) {
		c.Payload = nil
		if c.State == Held && !slices.Contains(o.Sources, c) {
			t.set(c, Refused)
			others = append(others, c.Commitment)
		}
	})
	return others
}

// InFlight returns the candidates that are being fetched.
func (t *Tally) InFlight() (flying []*Candidate) {
	t.each(func(_ *Slot, c *Candidate) {
		if c.State == Fetching {
			flying = append(flying, c)
		}
	})
	return flying
}

// InVain reports whether every known result that could still be fetched was tried at least the given
// number of times.
func (t *Tally) InVain(attempts int) bool {
	vain := true
	t.each(func(_ *Slot, c *Candidate) {
		if c.State == Announced || c.State == Fetching {
			vain = vain && c.Attempts >= attempts
		}
	})
	return vain
}

// Blobs returns the hashes of the round's results that may be in the blob store.
func (t *Tally) Blobs() []Commitment {
	hashes := make([]Commitment, 0, len(t.Slots))
	t.each(func(_ *Slot, c *Candidate) {
		if c.State != Announced || c.Attempts > 0 {
			hashes = append(hashes, c.Commitment)
		}
	})
	return hashes
}

// EachBlob calls do for the hash of each result that is held or being fetched. Blobs that a refused
// candidate shares with such a result must not be dropped.
func (t *Tally) EachBlob(do func(hash Commitment)) {
	t.each(func(_ *Slot, c *Candidate) {
		if c.State == Held || c.State == Fetching {
			do(c.Commitment)
		}
	})
}

// Two returns the signed announcements of two results of the batch, or nil if there are not two.
func (s *Slot) Two() (first, second []byte) {
	if len(s.Candidates) < 2 {
		return nil, nil
	}
	return s.Candidates[0].raw, s.Candidates[1].raw
}

// EachChanged calls put for each batch whose signed announcements for peers have changed since the
// last call. The preferred announcement is the first.
func (t *Tally) EachChanged(put func(slot int, raws [][]byte)) {
	if !t.changed {
		return
	}
	t.changed = false
	for i := range t.Slots {
		if s := &t.Slots[i]; s.changed {
			s.changed = false
			put(i, t.announcements(s))
		}
	}
}

// announcements returns the signed announcements of a slot, the preferred one first.
func (t *Tally) announcements(s *Slot) [][]byte {
	raws := make([][]byte, len(s.Candidates))
	for i, c := range s.Candidates {
		raws[i] = c.raw
	}
	if len(raws) > 1 {
		preferred := t.HeldOf(s)
		if i := slices.Index(s.Candidates, preferred); i > 0 {
			raws[0], raws[i] = raws[i], raws[0]
		}
	}
	return raws
}
