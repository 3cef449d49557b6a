package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/bloom"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/merkle"
	"github.com/psyche-go/psyche/wire"
)

// maxCandidates bounds the results of one batch that are kept while the round runs: an
// honest trainer sends one, and two prove that it is not honest. When the round is over
// one more is kept for each of its witnesses.
const maxCandidates = 2

// wholeVote is the vote of one witness; see support.
const wholeVote = 1 << 16

// Reasons why an announcement is not heard.
var (
	errUnknownBatch  = errors.New("no such batch in the round")
	errNotAssignee   = errors.New("the batch is another client's")
	errKnownResult   = errors.New("announced before")
	errEquivocation  = errors.New("a second result for the same batch")
	errOtherSize     = errors.New("announced before with another size")
	errTooManyBefore = errors.New("two other results for the same batch came before")
)

// candidateState is how far a result has come on its way here.
type candidateState uint8

const (
	announced candidateState = iota // known by its hash
	fetching                        // its blob is on the way
	held                            // fetched and verified
	refused                         // its blob is not a valid result, or of no use any more
)

// candidate is one announced result of a batch.
type candidate struct {
	commitment commitment
	size       uint32
	replica    [32]byte
	raw        []byte // the signed announcement
	inTime     bool   // it was heard while the round ran
	votes      int    // of the finished round's witnesses, once polled
	polled     bool
	state      candidateState
	payload    []byte // of the own result until it is applied, and of what the blob store does not keep
	attempts   int    // to fetch it
	retryAt    time.Time
	disputed   bool               // its trainer signed several sizes: none is believed
	noRoom     bool               // the last attempt failed for want of memory
	stop       context.CancelFunc // of the newest fetch
	stopped    bool               // stop was called for another reason than a dispute
	due        time.Time          // when fetching: from then on it gives way to others
}

// slot is what is known of one batch.
type slot struct {
	batch      assign.BatchID
	owner      coordinator.ClientID
	warming    bool // the owner's optimizer is too young for its result to count
	candidates []*candidate
	unshelved  bool // peers cannot ask for the newest candidates yet, or get them in another order
}

// results keeps the books of one round: what was announced, what is held, and what of it
// counts in the end. It does no I/O and is used by one goroutine.
type results struct {
	round   coordinator.Round // newest known; Witnesses may grow until final
	final   bool              // the round is over, no witness can be added
	slots   []slot            // ascending batches
	replica [32]byte          // own replica hash when the round began, once known
	began   bool              // replica is known
	changes int               // of what is known or held: beside the witnesses decide depends on nothing else

	displaced []*candidate // made room for others; to be let go of
}

// newResults opens the books of a round. Members that got no batch have no slot.
func newResults(round coordinator.Round, assignments []assign.Assignment) *results {
	r := &results{round: round}
	r.slots = make([]slot, 0, len(assignments))
	for _, a := range assignments {
		r.slots = append(r.slots, slot{batch: a.Batch, owner: round.Members[a.Member], warming: round.Warming.Has(a.Member)})
	}
	return r
}

// renew takes over what a newer state says of the round, and whether it is over.
func (r *results) renew(round coordinator.Round, final bool) {
	if !slices.Equal(r.round.Witnesses, round.Witnesses) {
		for i := range r.slots {
			for _, c := range r.slots[i].candidates {
				c.polled = false
			}
		}
	}
	r.round, r.final = round, final
}

// votes returns how many witnesses of the finished round hold a candidate.
func (r *results) votes(c *candidate) int {
	if !c.polled {
		c.votes, c.polled = r.round.Votes(c.commitment), true
	}
	return c.votes
}

// unfinished reports whether a candidate is on its way or could be.
func (r *results) unfinished() bool {
	return slices.ContainsFunc(r.slots, func(s slot) bool {
		return slices.ContainsFunc(s.candidates, func(c *candidate) bool { return c.state == announced || c.state == fetching })
	})
}

// begin fixes the replica hash that results of this round must carry to be held.
func (r *results) begin(replica [32]byte) {
	r.replica, r.began = replica, true
	r.changes++
}

// find returns the slot of a batch, or nil.
func (r *results) find(batch assign.BatchID) *slot {
	i := sort.Search(len(r.slots), func(i int) bool { return r.slots[i].batch.Start >= batch.Start })
	if i == len(r.slots) || r.slots[i].batch != batch {
		return nil
	}
	return &r.slots[i]
}

// own returns the slot of the client, or nil when it got no batch.
func (r *results) own(id identity.ID) *slot {
	for i := range r.slots {
		if r.slots[i].owner == coordinator.ClientID(id) {
			return &r.slots[i]
		}
	}
	return nil
}

// hear enters an announcement whose signature was verified. It returns errEquivocation
// after entering a second result, and another error when nothing was entered:
// errOtherSize when what was entered before may have been a trap. Beyond
// two results per batch only those are entered that witnesses of the finished round
// hold, so that a trainer that sends many can neither hide the one that counts nor that
// none does: without knowing where the witnesses' votes went nobody can rule out that one
// has the quorum. When all places are taken, a result with more support takes the place of
// the one with the least, which is then among displaced.
func (r *results) hear(author identity.ID, a wire.ResultAnnouncement, raw []byte) error {
	s := r.find(a.Batch)
	if s == nil {
		return fmt.Errorf("%w: batch %v of step %d", errUnknownBatch, a.Batch, a.Step)
	}
	if s.owner != coordinator.ClientID(author) {
		return fmt.Errorf("%w: batch %v of step %d", errNotAssignee, a.Batch, a.Step)
	}
	for _, c := range s.candidates {
		if c.commitment == a.Blob {
			if c.size != a.Size && !c.disputed && c.state != held {
				return errOtherSize
			}
			return errKnownResult
		}
	}
	if n := len(s.candidates); n >= maxCandidates {
		if !r.final || r.round.Votes(a.Blob) == 0 ||
			n >= maxCandidates+int(r.round.WitnessesElected) && !r.displace(s, a.Blob) {
			return errTooManyBefore
		}
	}
	s.unshelved = true
	r.changes++
	s.candidates = append(s.candidates, &candidate{commitment: a.Blob, size: a.Size, replica: a.Replica, raw: raw, inTime: !r.final})
	if len(s.candidates) > 1 {
		return errEquivocation
	}
	return nil
}

// displace takes the candidate with the least support out of a slot, if a new one has more.
// What was heard while the round ran and is held stays, at most two: of these is the one
// that this client proved to hold, and those that it needs to read the lists of others
// that proved the same.
//
// No other result that an honest witness holds is displaced or kept out, however many a
// trainer and the witnesses that lie for it name: it has that witness's whole vote, and
// there are as many places beside those two as votes. A trainer would have to fill the
// places with results that pass the filters of honest witnesses by error, so that these
// part their votes.
func (r *results) displace(s *slot, with commitment) bool {
	commitments := make([]commitment, 0, len(s.candidates)+1)
	for _, c := range s.candidates {
		commitments = append(commitments, c.commitment)
	}
	support := r.support(append(commitments, with))
	least := -1
	for i, c := range s.candidates {
		if stays := c.inTime && c.state == held; !stays && (least < 0 || support[i] < support[least]) {
			least = i
		}
	}
	if least < 0 || support[least] >= support[len(s.candidates)] {
		return false
	}
	r.displaced = append(r.displaced, s.candidates[least])
	s.candidates = slices.Delete(slices.Clone(s.candidates), least, least+1)
	return true
}

// support returns how much of the votes of the round's witnesses each of several results of
// one batch has. A witness parts its vote among all of them that its filter contains, as
// an honest one holds one of them at most.
func (r *results) support(commitments []commitment) []int {
	keys := bloom.NewKeys(r.round.Seed)
	positions := make([]bloom.Positions, len(commitments))
	for i, c := range commitments {
		positions[i] = keys.Positions(c[:])
	}
	support := make([]int, len(commitments))
	for k := range r.round.Witnesses {
		var named []int
		for i := range positions {
			if r.round.Witnesses[k].Commitments.ContainsPositions(positions[i]) {
				named = append(named, i)
			}
		}
		for _, i := range named {
			support[i] += wholeVote / len(named)
		}
	}
	return support
}

// heldOf returns the verified result of a slot that was made from the same replica as
// the own one; of two the one with the lower commitment, whichever came first.
func (r *results) heldOf(s *slot) *candidate {
	var best *candidate
	for _, c := range s.candidates {
		if c.state != held || !r.began || c.replica != r.replica {
			continue
		}
		if best == nil || bytes.Compare(c.commitment[:], best.commitment[:]) < 0 {
			best = c
		}
	}
	return best
}

// complete reports whether a result of every batch is held whose owner still counts.
func (r *results) complete(counts func(coordinator.ClientID) bool) bool {
	for i := range r.slots {
		if r.heldOf(&r.slots[i]) == nil && counts(r.slots[i].owner) {
			return false
		}
	}
	return true
}

// witness returns the proof of what is held, and the number of held results.
func (r *results) witness() (coordinator.WitnessRound, int) {
	w := coordinator.WitnessRound{Step: r.round.Step, Replica: r.replica}
	leaves := make([][32]byte, len(r.slots))
	keys := bloom.NewKeys(r.round.Seed)
	count := 0
	for i := range r.slots {
		c := r.heldOf(&r.slots[i])
		if c == nil {
			continue
		}
		count++
		leaves[i] = c.commitment
		w.Participants.AddPositions(keys.Positions(r.slots[i].owner[:]))
		w.Commitments.AddPositions(keys.Positions(c.commitment[:]))
	}
	w.CommitmentsRoot = merkle.Root(leaves)
	return w, count
}

// ballot returns what decides the round.
func (r *results) ballot() ballot {
	b := ballot{
		round:      &r.round,
		owners:     make([]coordinator.ClientID, len(r.slots)),
		candidates: make([][]commitment, len(r.slots)),
		held:       make([][]commitment, len(r.slots)),
	}
	for i, s := range r.slots {
		b.owners[i] = s.owner
		for _, c := range s.candidates {
			b.candidates[i] = append(b.candidates[i], c.commitment)
			if c.state == held {
				b.held[i] = append(b.held[i], c.commitment)
			}
		}
	}
	return b
}

// outcome is what becomes of a finished round.
type outcome struct {
	counted  []countedResult
	sources  []*candidate // of counted, in the same order
	payloads [][]byte     // of counted, in the same order, once they are read
	lost     []slot       // batches without a counted result
	missing  int          // results that count and are not held, or not even known
	open     bool         // not even known which results count
	informed []uint16     // members that know more of those not even known
	noRoom   bool         // one of missing did not fit into the memory for blobs
}

// decide returns the outcome. It stands only when nothing is missing.
func (r *results) decide() outcome {
	b := r.ballot()
	v := b.decide()
	o := outcome{missing: len(v.unknown), open: len(v.unknown) > 0}
	if len(v.unknown) > 0 {
		o.informed = b.informed(v.unknown)
	}
	for i := range r.slots {
		s := &r.slots[i]
		if s.warming || v.chosen[i] == (commitment{}) {
			o.lost = append(o.lost, *s)
			continue
		}
		for _, c := range s.candidates {
			if c.commitment != v.chosen[i] {
				continue
			}
			if c.state != held {
				o.missing++
				o.noRoom = o.noRoom || c.noRoom
			}
			o.counted = append(o.counted, countedResult{s.batch, c.commitment})
			o.sources = append(o.sources, c)
		}
	}
	return o
}

// announcements returns the signed announcements of a slot, the own choice first.
func (r *results) announcements(s *slot) [][]byte {
	raws := make([][]byte, len(s.candidates))
	for i, c := range s.candidates {
		raws[i] = c.raw
	}
	if len(raws) > 1 {
		preferred := r.heldOf(s)
		if i := slices.Index(s.candidates, preferred); i > 0 {
			raws[0], raws[i] = raws[i], raws[0]
		}
	}
	return raws
}

// blobs returns the hashes of what may be in the blob store because of the round.
func (r *results) blobs() [][32]byte {
	hashes := make([][32]byte, 0, len(r.slots))
	for i := range r.slots {
		for _, c := range r.slots[i].candidates {
			if c.state != announced || c.attempts > 0 {
				hashes = append(hashes, c.commitment)
			}
		}
	}
	return hashes
}

// eachBlob calls do for each hash of what is held or on its way: another trainer may have
// announced the same and been refused.
func (r *results) eachBlob(do func(hash [32]byte)) {
	for i := range r.slots {
		for _, c := range r.slots[i].candidates {
			if c.state == held || c.state == fetching {
				do(c.commitment)
			}
		}
	}
}
