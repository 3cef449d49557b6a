package core

import (
	"math"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Events of the offers of a run with shares by speed.
type (
	// Offering compares the member's offer with its speed. The caller repeats it after every other event.
	Offering struct {
		Training    *Underway // nil: the trainer computes no gradient of a batch
		Part        *Part     // in the running round; nil: none
		Held, Other int       // results of other trainers in the round that are here, and other trainers
	}

	// Measured is the speed of a training that has ended, without waiting.
	Measured struct {
		Underway
		Result    bool // it has a result; otherwise it was cancelled
		Rehearsal bool // it was a Rehearse
	}
)

// Underway is the progress of a training.
type Underway struct {
	Step   uint32
	Tokens int
	Took   time.Duration // without waiting

	Complete, Begun float64 // parts of the tokens whose computation is complete, and has begun: 0 to 1
}

// Offered means that the run knows a new offer.
type Offered struct{ coordinator.Offer }

func (Offered) report() {}

func (Offering) event() {}
func (Measured) event() {}

// most returns the highest possible speed of the training: the part in progress ends now.
func (u *Underway) most() float64 { return levelOf(float64(u.Tokens)*u.Begun, u.Took) }

// least returns the speed without the part in progress, or with half of it if no part is complete.
func (u *Underway) least() float64 {
	part := u.Complete
	if part == 0 {
		part = u.Begun / 2
	}
	return levelOf(float64(u.Tokens)*part, u.Took)
}

// slowTraining is how many times as long as expected a training may take before the member offers less.
// A witness waits a quarter of the usual time for the last results, so a result that takes longer is
// probably too late.
const slowTraining = 1.4

// excuseLevels is how far an offer must be below the level of a batch to excuse a missing result.
const excuseLevels = coordinator.LevelExcuse + 1

// rehearsalWait is how long a member delays Ready for the tokens of a rehearsal. Then it rehearses without them.
const rehearsalWait = 5 * time.Second

// offers decides which speed the member offers. Before the first round it measures a rehearsal: the
// training of a part of its first batch, without a result. A member without a batch in the first round, or whose
// batch does not arrive in time, trains sequences of one token. If no rehearsal is possible, the member offers nothing until it has trained a batch: the
// run then gives it an equal share if no member has offered, and the smallest share otherwise, which may have no
// sequence. A restarted process rehearses again, so an old offer does not stay.
type offers struct {
	speed     speed
	slow      uint8     // level of a training that is slower than expected; counts until the next measurement; 0: none
	delayed   bool      // the newest training took so much longer than expected that its result may be too late
	rehearsed bool      // a rehearsal has started
	since     time.Time // when the first rehearsal could start
}

// prepare reports whether Ready may be sent. If not, it waits for a rehearsal, or starts it.
func (o *offers) prepare(c *common, e Prepared) (done bool) {
	if !c.state.Config.SharesBySpeed || o.speed.isKnown() || c.Leave.Begun() {
		return !c.Actions.isFlying(offerKind) // an offer that arrives before the first round counts a round earlier
	}
	if o.rehearsed {
		_, runs := c.Jobs.Work().(Rehearse)
		return !runs
	}
	if o.since.IsZero() {
		o.since = c.now
	}
	waited := c.now.Sub(o.since) >= rehearsalWait
	if e.Batch && (e.Tokens || waited) && c.Jobs.Idle() {
		o.rehearsed = true
		c.ready.Next = Rehearse{}
		return false
	}
	return !e.Batch || waited
}

// look sends an offer that differs from the newest one, at most once a round.
func (o *offers) look(c *common, e Offering) {
	s := c.state
	if s.RunState != coordinator.Warmup {
		c.Jobs.cancelRehearsal()
	}
	switch s.RunState {
	case coordinator.Warmup, coordinator.RoundTrain, coordinator.RoundWitness:
	default:
		return
	}
	me, ok := s.Member(c.ID)
	if !s.Config.SharesBySpeed || !ok || me.State != coordinator.Healthy || c.Leave.Begun() {
		return
	}
	if e.Training != nil && e.Part != nil && e.Training.Step == e.Part.Step {
		o.check(c, me, e)
	}
	level := o.speed.level(me.Offer)
	switch base := int(max(c.levelIn(s.Progress.Step, me), me.Level)); {
	case o.slow > 0:
		level = min(level, o.slow)
	case level > 0 && !o.delayed: // the run must not excuse a member whose results come in time
		level = uint8(max(int(level), min(base-excuseLevels+1, int(me.Offer))))
	}
	if level > 0 && level != me.Offer && !me.Offered {
		c.submit(offerKind, s.Progress.Step, coordinator.Offer{Step: s.Progress.Step, Level: level})
	}
}

// check compares the progress of a training with the level that determined the size of its batch, and with
// the other members, after half of their results are here. If the training takes much longer, the member offers
// less, so that the run excuses a missing result. If all members are slow, the round waits for all.
func (o *offers) check(c *common, me *coordinator.Client, e Offering) {
	t := e.Training
	if e.Other == 0 || 2*e.Held < e.Other {
		return
	}
	if e.Part.half.IsZero() {
		e.Part.half = c.now
	}
	expected := c.levelIn(e.Part.Step, me)
	if expected == 0 || int(me.Offer)+excuseLevels <= int(expected) || t.Begun == 0 {
		return
	}
	should := float64(t.Tokens) / math.Exp2((float64(expected)+0.5)/8) // seconds
	if t.Took.Seconds() < should/2 {
		return // the estimate is not good enough yet
	}
	should = max(should, e.Part.half.Sub(e.Part.Opened).Seconds())
	over := float64(t.Tokens)/math.Exp2(t.most()/8) - should
	if over <= (slowTraining-1)*should || over <= LeastWitnessWait.Seconds() {
		return
	}
	o.slow = min(floorOf(t.least()), max(expected, excuseLevels+1)-excuseLevels)
}

// levelIn returns the member's level in the running round; 0: none, or unknown.
func (c *common) levelIn(step uint32, me *coordinator.Client) uint8 {
	round := c.state.CurrentRound()
	if round == nil || step != round.Step {
		return 0
	}
	if member, ok := round.MemberIndex(me.ID); ok {
		return round.Levels[member]
	}
	return 0
}

// measured adds the speed of a training. A training that was cancelled shows only that the member is not
// much faster.
func (o *offers) measured(e Measured) {
	if e.Tokens == 0 || e.Begun == 0 || e.Took <= 0 {
		return
	}
	expected := float64(e.Tokens) * e.Begun / math.Exp2(o.speed.mean/8) // seconds
	o.delayed = o.speed.isKnown() && (e.Took.Seconds()-expected) > LeastWitnessWait.Seconds()
	switch {
	case e.Rehearsal:
		if !o.speed.isKnown() {
			o.speed.guess(e.most())
		}
		return
	case e.Result:
		o.speed.add(e.most())
	case !o.speed.isKnown() && e.Took >= LeastWitnessWait:
		o.speed.guess(e.least())
	case o.speed.isKnown() && e.most() < o.speed.mean-slowLevel:
		o.speed.add(e.least())
	default:
		return
	}
	o.slow = 0
}
