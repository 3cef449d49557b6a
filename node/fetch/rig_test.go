package fetch

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/node/tally"
	"lukechampine.com/blake3"
)

const completion = 80 * time.Second // maximum time to complete a round in these tests

var errGone = errors.New("no holder has it")

// rig is a Fetcher with a clock, tasks, blobs and an owner that the test controls.
type rig struct {
	*Fetcher
	tally *tally.Tally
	slot  *tally.Slot // slot of the first batch
	clock *timeline
	store *store
	owner *owner
}

// newRig returns a rig with the tally of one finished round. Each of the three witnesses has only one
// result, which is of the first batch and has the commitment holds.
func newRig(t *testing.T, holds tally.Commitment) *rig {
	round := clienttest.Round()
	tallied := tally.New(round, 1, round.Assignments(clienttest.Config(3)))
	list := make([]tally.Commitment, len(tallied.Slots))
	list[0] = holds
	round.Witnesses = clienttest.Proofs(round.Seed, clienttest.Owners(round), list, list, list)
	tallied.Renew(round, true)
	r := &rig{tally: tallied, slot: &tallied.Slots[0], clock: &timeline{now: time.Now()}, store: &store{blobs: map[[32]byte][]byte{}}}
	r.owner = &owner{blobs: exchange.NewBlobs(r.store.Drop)}
	r.owner.blobs.NeededBy(tallied.EachBlob)
	r.Fetcher = New(Options{
		Tasks: &env.Tasks{Runtime: r.clock, Work: t.Context()}, Blobs: r.store, Owner: r.owner,
		Log: slog.New(slog.DiscardHandler), Limit: 8,
	})
	return r
}

// enter adds a result to the slot of its batch, even if no witness holds the result.
func (r *rig) enter(t *testing.T, s *tally.Slot, c tally.Commitment) *tally.Candidate {
	t.Helper()
	round, all := r.tally.Round, coordinator.Witness{}
	for i := range all.Commitments {
		all.Commitments[i] = ^all.Commitments[i]
	}
	r.tally.Round.Witnesses = []coordinator.Witness{all} // without these votes it would be refused
	err := r.tally.Receive(identity.ID(s.Owner), clienttest.Announcement(s.Batch, c, [32]byte{}), c[:])
	r.tally.Round = round
	if err != nil && !errors.Is(err, tally.ErrEquivocation) {
		t.Fatal(err)
	}
	return s.Candidates[len(s.Candidates)-1]
}

// result makes a valid result of a candidate available.
func (r *rig) result(s *tally.Slot, c *tally.Candidate) []byte {
	payload := clienttest.Result(r.tally.Round.Step, s.Batch, s.Owner, [32]byte{})
	r.store.blobs[c.Commitment] = payload
	c.Size = uint32(len(payload))
	return payload
}

// begin starts the fetches that are due.
func (r *rig) begin() {
	r.Fetch([]*tally.Tally{r.tally}, Terms{Trainer: &clienttest.Trainer{}, Completion: completion, Round: completion})
}

// wants returns the results to fetch, in order.
func (r *rig) wants() (found []tally.Commitment) {
	for _, w := range r.wanted(r.clock.now, []*tally.Tally{r.tally}) {
		found = append(found, w.Candidate.Commitment)
	}
	return found
}

// arrives ends the fetch of a result.
func (r *rig) arrives(s *tally.Slot, c *tally.Candidate, payload []byte, err, invalid error) {
	if r.flights[c] == nil {
		r.take(c, func() {}, r.clock.now)
	}
	r.fetched(r.tally, s, c, payload, err, invalid)
}

// timeline is an env.Runtime whose time and tasks advance only when the test calls it.
type timeline struct {
	env.Runtime
	now   time.Time
	tasks []func() func()
}

func (l *timeline) Now() time.Time { return l.now }

func (l *timeline) WithTimeout(parent context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithCancel(parent)
}

func (l *timeline) Run(task func() (proceed func())) { l.tasks = append(l.tasks, task) }

// finish runs the tasks that have been started.
func (l *timeline) finish() {
	tasks := l.tasks
	l.tasks = nil
	for _, task := range tasks {
		task()()
	}
}

// asked records one fetch.
type asked struct {
	hash    [32]byte
	size    uint64
	upTo    bool
	holders []identity.ID
}

// store is an env.Blobs with all blobs in a map. It records fetches from holders.
type store struct {
	env.Blobs
	blobs     map[[32]byte][]byte
	asked     []asked
	dropped   [][32]byte
	err       error // error of fetches from holders, and of Keep, if not nil
	forgetful bool  // discards fetched blobs
}

func (s *store) Put(data []byte) ([32]byte, error) {
	hash := blake3.Sum256(data)
	s.blobs[hash] = data
	return hash, nil
}

func (s *store) Keep(data []byte) ([32]byte, error) {
	if s.err != nil {
		return [32]byte{}, s.err
	}
	return s.Put(data)
}

func (s *store) Drop(hash [32]byte) {
	s.dropped = append(s.dropped, hash)
	delete(s.blobs, hash)
}

func (s *store) Fetch(ctx context.Context, hash [32]byte, size uint64, holders []identity.ID) ([]byte, error) {
	data, err := s.fetch(ctx, asked{hash, size, false, holders})
	if err == nil && uint64(len(data)) != size {
		return nil, errGone
	}
	return data, err
}

func (s *store) FetchUpTo(ctx context.Context, hash [32]byte, size uint64, holders []identity.ID) ([]byte, error) {
	return s.fetch(ctx, asked{hash, size, true, holders})
}

func (s *store) fetch(ctx context.Context, a asked) ([]byte, error) {
	if a.holders != nil {
		s.asked = append(s.asked, a)
		if err := errors.Join(ctx.Err(), s.err); err != nil {
			return nil, err
		}
	} else if s.forgetful {
		return nil, errGone
	}
	if data, held := s.blobs[a.hash]; held {
		return data, nil
	}
	return nil, errGone
}

// owner records its notifications.
type owner struct {
	blobs    *exchange.Blobs
	late     bool
	held     []tally.Commitment
	rejected []string
	noRoom   int
}

func (o *owner) Late(*tally.Tally) bool { return o.late }

func (o *owner) Held(_ *tally.Tally, _ *tally.Slot, c *tally.Candidate) {
	o.held = append(o.held, c.Commitment)
}

func (o *owner) Rejected(_ *tally.Tally, _ *tally.Slot, reason string) {
	o.rejected = append(o.rejected, reason)
}

func (o *owner) NoRoom() { o.noRoom++ }

func (o *owner) Drop(hashes ...[32]byte) { o.blobs.Drop(hashes...) }

// has reports whether a result is in a list.
func has(list []*tally.Candidate, c *tally.Candidate) bool { return slices.Contains(list, c) }
