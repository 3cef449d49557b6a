package core

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
)

// delivery is when a dishonest member delivers its result.
type delivery int

const (
	atOnce  delivery = iota // when the round begins
	justNow                 // just before the witness stops waiting
	never
)

// paceRun models an epoch: members train, and an honest witness decides when rounds end.
type paceRun struct {
	members   int
	dishonest int // the first members
	seed      uint64
	lag       int
	audits    int // percent
	batch     uint32
	rounds    int
	sequence  func(member int) time.Duration // time that an honest member needs for a sequence
	delivers  func(member, round int) delivery
	most      time.Duration // max_round_train_time
}

// modelTick is the time between two looks of the witness.
const modelTick = 200 * time.Millisecond

// paceRound is the outcome of a round.
type paceRound struct {
	lasted  time.Duration
	full    time.Duration // longest time that an honest member needs for the round's largest batch
	late    int           // honest trainers without a result
	outside bool          // the dishonest members are a third of the trainers or more
}

// paceMember returns the key of a member.
func paceMember(i int) coordinator.ClientID { return coordinator.ClientID{1, byte(i)} }

// modelRound is the state of a round in the model.
type modelRound struct {
	*Part
	batches []assign.Assignment
	came    map[int]time.Time // by member
	now     time.Time
	members []coordinator.ClientID
}

func (r *modelRound) Members() []coordinator.ClientID { return r.members }

func (r *modelRound) Arrived() (held []coordinator.ClientID) {
	for _, b := range r.batches {
		if at, ok := r.came[b.Member]; ok && !at.After(r.now) {
			held = append(held, r.members[b.Member])
		}
	}
	return held
}

func (r *modelRound) Awaited() (held, all []coordinator.ClientID) {
	for _, b := range r.batches {
		all = append(all, r.members[b.Member])
	}
	return r.Arrived(), all
}

// trainers returns the owners of the batches.
func (r *modelRound) trainers() []coordinator.ClientID {
	_, all := r.Awaited()
	return all
}

// play plays the epoch. No member loses its seat.
func (c paceRun) play() (out []paceRound) {
	opened, free := time.Unix(1000, 0), make([]time.Time, c.members)
	var members []coordinator.ClientID
	for i := range c.members {
		members = append(members, paceMember(i))
	}
	var before *modelRound
	for n := range c.rounds {
		part, begin := NewPart(uint32(n), true, opened), opened
		r := &modelRound{Part: &part, came: make(map[int]time.Time), now: opened, members: members}
		levels := make([]uint8, c.members)
		r.batches = assign.Batches(c.seed<<16+uint64(n), c.members, c.audits, 0, c.batch, levels)
		part.Divide(members, levels, r.batches)
		if before != nil {
			part.Follow(before.Part)
			if c.lag > 1 {
				part.Ahead(before.Part, before.trainers(), r.trainers())
				begin = before.Opened
			}
		}
		result, largest, dishonest := paceRound{}, uint64(0), 0
		for _, b := range r.batches {
			largest = max(largest, b.Batch.Len())
			if i := b.Member; i < c.dishonest {
				dishonest++
				if c.delivers(i, n) == atOnce {
					r.came[i] = opened
				}
				continue
			}
			if free[b.Member].Before(begin) {
				free[b.Member] = begin
			}
			free[b.Member] = free[b.Member].Add(c.sequence(b.Member) * time.Duration(b.Batch.Len()))
			r.came[b.Member] = free[b.Member]
		}
		for i := c.dishonest; i < c.members; i++ {
			result.full = max(result.full, c.sequence(i)*time.Duration(largest))
		}
		for !part.complete(r, r.now) && r.now.Sub(opened) < c.most {
			r.now = r.now.Add(modelTick)
		}
		for _, b := range r.batches {
			if i := b.Member; i < c.dishonest && c.delivers(i, n) == justNow {
				r.came[i] = r.now
			} else if at, ok := r.came[i]; i >= c.dishonest && (!ok || at.After(r.now)) {
				result.late++
			}
		}
		part.complete(r, r.now)
		result.lasted, result.outside = r.now.Sub(opened), 3*dishonest >= len(r.batches)
		out = append(out, result)
		opened, before = r.now.Add(100*time.Millisecond), r
	}
	return out
}

// TestLargerBatchesAreInTime has equal members in rounds in which some batches have one sequence more.
func TestLargerBatchesAreInTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := paceRun{
			members: rapid.IntRange(2, 16).Draw(t, "members"), seed: rapid.Uint64Range(0, 1000).Draw(t, "seed"), lag: rapid.IntRange(1, 2).Draw(t, "lag"),
			audits: rapid.SampledFrom([]int{0, 15, 25, 40}).Draw(t, "audits"), batch: rapid.Uint32Range(1, 60).Draw(t, "batch"), rounds: 12, most: time.Hour,
			sequence: func(int) time.Duration { return 5 * time.Second },
		}
		for n, r := range c.play() {
			if r.late > 0 || r.lasted > r.full+2*modelTick {
				t.Fatalf("round %d: %d members are late; it lasts %v, and the longest training %v", n, r.late, r.lasted, r.full)
			}
		}
	})
}

// TestCoalitionsDoNotSetThePace has arbitrary coalitions of fewer than a third of the members. The honest
// members differ by less than a quarter. None of them may be late, and a round may last a quarter longer
// than the longest honest training of its largest batch, or twice as long in a few rounds. With a lag of
// two, all rounds may last twice as long: the needs of members that train ahead remain unknown in long
// rounds, and a witness that did not wait for them would harm slow members (TestTwoThirdsSetThePace of proof/sim).
func TestCoalitionsDoNotSetThePace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := paceRun{
			members: rapid.IntRange(4, 13).Draw(t, "members"), seed: rapid.Uint64Range(0, 1000).Draw(t, "seed"), lag: rapid.IntRange(1, 2).Draw(t, "lag"),
			audits: rapid.SampledFrom([]int{0, 0, 25}).Draw(t, "audits"), rounds: 10, most: time.Minute,
		}
		c.dishonest = rapid.IntRange(1, (c.members-1)/3).Draw(t, "dishonest")
		c.batch = uint32(c.members) * uint32(rapid.IntRange(1, 3).Draw(t, "sequences"))
		c.batch += rapid.Uint32Range(0, uint32(c.members)).Draw(t, "more")
		speeds := rapid.SliceOfN(rapid.Int64Range(5000, 6000), c.members, c.members).Draw(t, "speeds")
		c.sequence = func(i int) time.Duration { return time.Duration(speeds[i]) * time.Millisecond }
		plans := rapid.SliceOfN(rapid.SampledFrom([]delivery{atOnce, justNow, never, justNow}), c.rounds*c.members, c.rounds*c.members).Draw(t, "deliveries")
		c.delivers = func(member, round int) delivery { return plans[round*c.members+member] }
		longer := 0
		for n, r := range c.play() {
			if r.outside {
				break // the coalition decides how long this round lasts
			}
			limit := func(need time.Duration) time.Duration {
				return need + max(LeastWitnessWait, need/4) + 5*modelTick
			}
			if r.lasted > limit(r.full) {
				longer++
			}
			if r.late > 0 || c.lag == 1 && longer > maxGuesses || r.lasted > limit(r.full*8/5) {
				t.Fatalf("round %d: %d honest members are late; it lasts %v, and the longest honest training %v; %d rounds are longer than usual", n, r.late, r.lasted, r.full, longer)
			}
		}
	})
}
