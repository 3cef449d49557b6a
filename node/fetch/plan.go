package fetch

import (
	"cmp"
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/node/tally"
)

const (
	// maxHolders is the maximum number of peers that are tried for one result. If a trainer gives
	// its result only to some members, a client that asks few peers finds the result late. The
	// client's own results are then too late for their rounds.
	maxHolders = 16

	// Pause is the minimum time between two attempts to get something from peers. It doubles with
	// every attempt up to maxPause.
	Pause    = 500 * time.Millisecond
	maxPause = 5 * time.Second

	// If other results wait, a fetch is cancelled after minTimeout plus slowFactor times the
	// duration that previous fetches suggest for its size. Without previous fetches, the limit is
	// 1/unmeasuredShare of the time in which a finished round has to complete.
	minTimeout      = 2 * time.Second
	slowFactor      = 4
	unmeasuredShare = 8
)

// Backoff returns the pause before the next attempt after a number of failed ones.
func Backoff(attempts int) time.Duration { return min(Pause<<min(attempts, 8), maxPause) }

// Rotation selects a different first peer in every turn, so that all peers get equally many requests.
type Rotation struct{ turn int }

// Turn returns the number of the current turn.
func (r *Rotation) Turn() int { return r.turn }

// Next starts the next turn and returns its number.
func (r *Rotation) Next() int {
	r.turn++
	return r.turn
}

// want is an announced result that is not being fetched.
type want struct {
	Tally     *tally.Tally
	Slot      *tally.Slot
	Candidate *tally.Candidate

	setbacks int // failed attempts, plus timeouts of its owner's other results
	need     tally.Need
	rank     int // position in the order of its round; lower ranks are fetched first
}

// flight is a fetch in progress.
type flight struct {
	stop    func()
	stopped bool      // cancelled by Stop (not by Interrupt)
	verify  func()    // verifies the result if its trainer pushed it in the meantime; else nil
	due     time.Time // time from which it may be cancelled in favour of other fetches
}

// Plan decides which results are fetched, when, and from which peers. Only one goroutine may use
// it.
type Plan struct {
	limit    int       // maximum number of concurrent fetches
	rotation *Rotation // shared by everything that asks peers

	wants   []want // buffer of wanted
	flights map[*tally.Candidate]*flight
	flying  int                 // fetches in progress
	overdue time.Time           // when the first fetch in progress may be cancelled in favour of other fetches
	pace    float64             // rate of the successful fetches, in bytes per second; 0: none yet
	stalls  map[identity.ID]int // number of timeouts of each member's results, in this epoch

	pardoned map[identity.ID]bool // members whose stalls were forgiven in this epoch, because they had been away
}

// newPlan returns a plan with at most limit concurrent fetches.
func newPlan(limit int, rotation *Rotation) *Plan {
	return &Plan{limit: limit, rotation: rotation, flights: make(map[*tally.Candidate]*flight), stalls: make(map[identity.ID]int), pardoned: make(map[identity.ID]bool)}
}

// ForgetStalls clears the records of stalls at the start of a new epoch.
func (p *Plan) ForgetStalls() {
	clear(p.stalls)
	clear(p.pardoned)
}

// IsBack clears the stalls of a member that was away, because they may date from that time. It does
// so once in an epoch, because a member that stalls deliberately could also leave and return.
func (p *Plan) IsBack(id identity.ID) {
	if p.stalls[id] > 0 && !p.pardoned[id] {
		p.pardoned[id] = true
		delete(p.stalls, id)
	}
}

// full reports whether all slots are taken.
func (p *Plan) full() bool { return p.flying >= p.limit }

// wanted returns the results that can be fetched now, in the order of their fetches. The next call
// overwrites the list.
func (p *Plan) wanted(now time.Time, open []*tally.Tally) []want {
	all := p.wants[:0]
	for _, t := range open {
		if t.Unfetched() == 0 {
			continue
		}
		first := len(all)
		needOf := t.Needs()
		for i := range t.Slots {
			s := &t.Slots[i]
			for _, c := range s.Candidates {
				if c.State != tally.Announced || now.Before(c.RetryAt) {
					continue
				}
				if need := needOf(s, c); need != tally.Useless {
					all = append(all, want{t, s, c, c.Attempts + p.stalls[identity.ID(s.Owner)], need, 0})
				}
			}
		}
		inOrder(all[first:], p.rotation.Turn()%2 == 1)
	}
	p.wants = all
	return all
}

// inOrder sorts the wanted results of one round. First come needed results that have not failed.
// Then needed results that have failed alternate with results that may not be needed. Therefore
// forged commitments do not delay the results that expose them, and uncounted results do not delay
// counted ones. failedFirst selects which of the two kinds starts; callers alternate it.
func inOrder(wants []want, failedFirst bool) {
	slices.SortStableFunc(wants, func(a, b want) int {
		return cmp.Or(cmp.Compare(a.setbacks, b.setbacks), cmp.Compare(a.need, b.need))
	})
	failed, others := 1, 2
	if !failedFirst {
		failed, others = others, failed
	}
	for i := range wants {
		switch w := &wants[i]; {
		case w.need != tally.Needed:
			w.rank, others = others, others+2
		case w.setbacks > 0:
			w.rank, failed = failed, failed+2
		}
	}
	slices.SortStableFunc(wants, func(a, b want) int { return cmp.Compare(a.rank, b.rank) })
}

// makeRoom cancels overdue fetches of the open rounds, at most as many as results wait for a slot,
// and records when the next one will be overdue. Cancelled results wait for their next turn.
func (p *Plan) makeRoom(now time.Time, open []*tally.Tally, waiting int, completion time.Duration) {
	p.overdue = now.Add(completion)
	for _, t := range open {
		for i := range t.Slots {
			s := &t.Slots[i]
			for _, c := range s.Candidates {
				f := p.flights[c]
				switch {
				case c.State != tally.Fetching || f.stopped:
				case waiting > 0 && now.After(f.due):
					p.Stop(c)
					p.stalls[identity.ID(s.Owner)]++
					waiting--
				case f.due.Before(p.overdue):
					p.overdue = f.due
				}
			}
		}
	}
}

// Stop cancels the download of a result that is no longer needed, or that must free its slot.
func (p *Plan) Stop(c *tally.Candidate) {
	if f := p.flights[c]; f != nil {
		f.stopped = true
		f.stop()
	}
}

// Interrupt cancels the download of a result whose size is disputed. The next fetch of the result
// accepts any allowed size.
func (p *Plan) Interrupt(c *tally.Candidate) {
	if f := p.flights[c]; f != nil {
		f.stop()
	}
}

// StopRound cancels the downloads of a round whose results are no longer needed.
func (p *Plan) StopRound(t *tally.Tally) {
	for _, c := range t.InFlight() {
		p.Stop(c)
	}
}

// timeout returns how long a fetch of size bytes may delay others. It doubles with every attempt,
// so that a slow link does not prevent success permanently.
func (p *Plan) timeout(size uint64, attempts int, completion time.Duration) time.Duration {
	timeout := max(minTimeout, completion/unmeasuredShare)
	if p.pace > 0 {
		expected := slowFactor * float64(size) / p.pace // seconds
		timeout = minTimeout + time.Duration(min(expected, completion.Seconds()/2)*float64(time.Second))
	}
	return min(timeout<<min(attempts, 8), completion)
}

// take gives a slot to a result.
func (p *Plan) take(c *tally.Candidate, stop func(), due time.Time) {
	p.flying++
	p.flights[c] = &flight{stop: stop, due: due}
	if due.Before(p.overdue) {
		p.overdue = due
	}
}

// land releases the slot of a result.
func (p *Plan) land(c *tally.Candidate) {
	p.flying--
	delete(p.flights, c)
}

// measure includes a successful fetch in the pace.
func (p *Plan) measure(size int, took time.Duration) {
	pace := float64(size) / max(took.Seconds(), 1e-3)
	if p.pace == 0 {
		p.pace = pace
		return
	}
	p.pace += (pace - p.pace) / 8
}

// holders returns the members to ask for a result, in order. The result's trainer is the first. If
// the trainer signed several sizes of the result, or its results have timed out, it is the last. Of
// the other members, members whose results have timed out come after the rest.
func (p *Plan) holders(me identity.ID, w want) []identity.ID {
	owner := identity.ID(w.Slot.Owner)
	turn := p.rotation.Next()
	members := w.Tally.Round.Members
	others := make([]identity.ID, 0, maxHolders)
	last := w.Candidate.Disputed || p.stalls[owner] > 0
	if !last {
		others = append(others, owner)
	}
	room := len(others) + maxHolders - 1
	var stalling []identity.ID
	for i := 0; i < len(members) && len(others) < room; i++ {
		id := identity.ID(members[(i+turn)%len(members)])
		switch {
		case id == owner || id == me:
		case p.stalls[id] > 0:
			stalling = append(stalling, id)
		default:
			others = append(others, id)
		}
	}
	slices.SortStableFunc(stalling, func(a, b identity.ID) int { return cmp.Compare(p.stalls[a], p.stalls[b]) })
	others = append(others, stalling[:min(len(stalling), room-len(others))]...)
	if last {
		others = append(others, owner)
	}
	return others
}
