package coordinator

import (
	"errors"
	"testing"
)

// TestAccusationsThatAreRefused checks each reason to refuse an accusation. If several reasons
// apply, the error reports the first in the order of the checks.
func TestAccusationsThatAreRefused(t *testing.T) {
	none, far, wrong := func(*court) {}, uint32(1<<31), maxFault+1
	young := func(c *court) {
		c.Config.ProbationSteps = 8
		c.client(c.accuser).ProbationUntil = c.Progress.Step + 1
	}
	tests := []struct {
		name  string
		alter func(*court)
		a     func(*Accuse)
		want  Code
	}{
		{"between epochs", func(c *court) { c.finishEpoch("x") }, func(a *Accuse) { a.Fault = wrong }, ErrWrongState},
		{"in Warmup", func(c *court) { c.finishEpoch("x"); c.until(Warmup) }, func(*Accuse) {}, ErrWrongState},
		{"of no fault", none, func(a *Accuse) { a.Fault = 0 }, ErrInvalidAction},
		{"of an unknown fault", none, func(a *Accuse) { a.Fault, a.Step = wrong, far }, ErrInvalidAction},
		{"of itself", none, func(a *Accuse) { a.Client = member(0) }, ErrInvalidAction},
		{"of no step", none, func(a *Accuse) { a.Step, a.Client = 0, clientID("x") }, ErrInvalidAction},
		{"of the running round", none, func(a *Accuse) { a.Step++ }, ErrWrongStep},
		{"of a step to come", none, func(a *Accuse) { a.Step, a.Client = far, clientID("x") }, ErrWrongStep},
		{"of a stranger", young, func(a *Accuse) { a.Client = clientID("x") }, ErrNotMember},
		{"by one that has left", func(c *court) { c.mustID(c.accuser, Withdraw{Client: c.accuser}); young(c) }, func(*Accuse) {}, ErrNotMember},
		{"by one that is pending", func(c *court) { c.mustID(c.accuser, Join{}) }, func(*Accuse) {}, ErrNotMember},
		{"on probation", func(c *court) { young(c); c.expel(c.accused, TwoResults) }, func(*Accuse) {}, ErrNotElected},
		{"with complaints", func(c *court) { c.client(c.accuser).Complaints = MaxComplaints }, func(*Accuse) {}, ErrNotElected},
		{"of one that is ejected", func(c *court) { c.expel(c.accused, TwoResults) }, func(*Accuse) {}, ErrDuplicate},
		{"with an open accusation", func(c *court) { c.fill(1) }, func(*Accuse) {}, ErrDuplicate},
		{"of a result on trial", func(c *court) { c.mustID(member(2), Accuse{c.step, c.accused, FaultSilent}) }, func(*Accuse) {}, ErrDuplicate},
		{"of a member with two open trials", func(c *court) {
			c.mustID(member(2), Accuse{c.step - 1, c.accused, FaultResult})
			c.round()
			c.mustID(member(3), Accuse{c.step + 1, c.accused, FaultResult})
		}, func(*Accuse) {}, ErrDuplicate},
		{"with too many open trials", func(c *court) { c.fill(MaxTrials + 1); c.Trials = c.Trials[1:] }, func(*Accuse) {}, ErrFull},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := newCourt(t, 12)
			c.round()
			c.step++
			a := Accuse{Step: c.step, Client: c.accused, Fault: FaultResult}
			if err := c.MayAccuse(c.accuser, a); err != nil {
				t.Fatalf("the member may accuse: %v", err)
			}
			test.alter(c)
			test.a(&a)
			c.refusedTo(test.want, c.accuser, a)
			if err := c.MayAccuse(c.accuser, a); !errors.Is(err, test.want) {
				t.Errorf("MayAccuse: %v", err)
			}
		})
	}
	stranger := newCourt(t, 12)
	stranger.refusedTo(ErrNotMember, clientID("x"), Accuse{stranger.step, stranger.accused, FaultResult})
}

// client returns a member of the epoch.
func (c *court) client(id ClientID) *Client {
	client, ok := c.Member(id)
	if !ok {
		c.t.Fatalf("%s is not a member", nameOf(id))
	}
	return client
}

// fill adds trials in which the first members are the accusers, even if there is no room for them.
func (c *court) fill(trials int) {
	for i := range trials {
		c.Trials = append(c.Trials, Trial{
			Slot: uint8(i), Accuser: member(i), Accused: member(11 - i), Step: c.step, Fault: FaultResult, Since: c.Progress.Step,
		})
	}
}

// TestAccusationsInEveryState checks accusations in every state of the run that allows them, for
// accused members in every list.
func TestAccusationsInEveryState(t *testing.T) {
	for name, alter := range map[string]func(*court){
		"a member":              func(*court) {},
		"one that leaves":       func(c *court) { c.mustID(c.accused, Withdraw{c.accused}) },
		"one that left":         func(c *court) { c.mustID(c.accused, Withdraw{c.accused}); c.round() },
		"one that joined again": func(c *court) { c.mustID(c.accused, Join{}) },
		"one that is no longer pending": func(c *court) {
			c.mustID(c.accused, Join{})
			c.mustID(c.accused, Withdraw{c.accused})
			c.Epoch.Clients[1].ID = clientID("z")
		},
		"while the round is proved":     func(c *court) { c.witnessAll(); c.until(RoundWitness) },
		"in Cooldown":                   func(c *court) { c.cooldown() },
		"one that saved its model":      func(c *court) { c.cooldown(); c.mustID(c.accused, ReportCheckpoint{Step: c.Progress.Step}) },
		"of the epoch before":           func(c *court) { c.finishEpoch("x"); c.startTraining(); c.step = 1 },
		"one that has accused a member": func(c *court) { c.mustID(c.accused, Accuse{c.step, member(5), FaultResult}) },
		"a second time": func(c *court) {
			c.mustID(member(2), Accuse{c.step, c.accused, FaultResult})
			c.round()
			c.step++
		},
		"after a complaint": func(c *court) { c.client(c.accuser).Complaints = MaxComplaints - 1 },
		"after probation": func(c *court) {
			c.Config.ProbationSteps = 8
			c.client(c.accuser).ProbationUntil = c.Progress.Step
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, fault := range []Fault{FaultResult, FaultSilent} {
				c := newCourt(t, 12)
				alter(c)
				c.accuse(fault)
				want := Trial{Slot: c.trial().Slot, Accused: c.accused, Accuser: c.accuser, Step: c.step, Fault: fault, Since: c.Progress.Step, SinceTime: c.StateStart}
				if *c.trial() != want || c.complaints() > MaxComplaints-1 {
					t.Errorf("trial %+v, want %+v", *c.trial(), want)
				}
				c.check()
			}
		})
	}
}

// cooldown plays to the end of the epoch.
func (c *court) cooldown() {
	c.Config.RoundsPerEpoch = c.Progress.Step - c.Epoch.StartStep + 1
	c.round()
}

// TestSlots checks that a trial gets the lowest free slot and no votes of its previous trial.
func TestSlots(t *testing.T) {
	c := newCourt(t, 12)
	for i := range 3 {
		c.mustID(member(i), Accuse{c.step, member(11 - i), FaultResult})
	}
	c.round()
	c.accuser, c.accused = member(1), member(10)
	c.vote(true, 2)
	c.vote(false, c.needed())
	if c.trial() != nil || len(c.Trials) != 2 || c.Trials[1].Slot != 2 {
		t.Fatalf("trials %+v", c.Trials)
	}
	c.check()
	c.mustID(member(5), Accuse{c.step, member(6), FaultResult})
	c.accuser, c.accused = member(5), member(6)
	if trial := c.trial(); trial.Slot != 1 || len(c.jury()) != 0 {
		t.Errorf("trial %+v with %d jurors", trial, len(c.jury()))
	}
	c.check()
	c.round()
	c.check()
	for _, id := range c.jury() {
		if _, voted := c.Juror(id, 1); voted {
			t.Errorf("%s has voted before the trial began", nameOf(id))
		}
	}
}
