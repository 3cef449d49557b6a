package coordinator

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// court is a run in which one member has found a wrong result of a different member.
type court struct {
	*run
	accuser, accused ClientID
	step             uint32 // step of the result
}

// auditedRun returns a run of the given number of members in the second round of its epoch. Four
// tenths of the members do not train.
func auditedRun(t testing.TB, members int) *run {
	t.Helper()
	config := longConfig()
	config.VerificationPercent, config.EjectionEpochs = 40, 2
	r := newRun(t, config, memberNames(members)...)
	r.round()
	return r
}

func memberNames(members int) (names []string) {
	for i := range members {
		names = append(names, memberName(i))
	}
	return names
}

func memberName(i int) string { return fmt.Sprintf("m%03d", i) }

// member returns the ID of member i. The accuser is member 0, the accused is member 1.
func member(i int) ClientID { return clientID(memberName(i)) }

func newCourt(t testing.TB, members int) *court {
	t.Helper()
	r := auditedRun(t, members)
	return &court{run: r, accuser: member(0), accused: member(1), step: r.Progress.Step - 1}
}

// fork returns a copy of the court that can continue differently.
func (c *court) fork() *court {
	r := *c.run
	r.State = c.Clone()
	clone := *c
	clone.run = &r
	return &clone
}

// round plays the rest of the round. All elected witnesses except r.silent send proofs.
func (r *run) round() {
	r.t.Helper()
	step := r.Progress.Step
	r.until(RoundTrain)
	if r.silent == (ClientID{}) {
		r.witnessAll()
	} else {
		round, proof := r.CurrentRound(), r.witnessOf(nameOf(r.silent))
		for _, i := range round.ElectedWitnesses(r.Config) {
			if id := round.Members[i]; id != r.silent && r.isHealthy(id) {
				r.mustID(id, proof)
			}
		}
	}
	for r.Progress.Step == step {
		r.now += second
		r.Tick(r.now, r.testDraw(r.now))
	}
}

func (r *run) rounds(n int) {
	r.t.Helper()
	for range n {
		r.round()
	}
}

// refusedTo checks that an action is refused with a code and does not change the state.
func (r *run) refusedTo(want Code, id ClientID, a Action) {
	r.t.Helper()
	before := r.Hash()
	r.nonce++
	if err := r.Apply(id, r.nonce, a); !errors.Is(err, want) {
		r.t.Fatalf("%s: %+v: %v, want %v", nameOf(id), a, err, want)
	}
	if r.Hash() != before {
		r.t.Fatalf("%+v was refused but changed the state", a)
	}
}

// ejection returns the ejection of a client, if the client is ejected.
func (s *State) ejection(id ClientID) (Ejection, bool) {
	i := slices.IndexFunc(s.Authority.Ejections, func(e Ejection) bool { return e.Client == id })
	if i < 0 {
		return Ejection{}, false
	}
	return s.Authority.Ejections[i], true
}

// accuse begins a trial for a fault.
func (c *court) accuse(fault Fault) {
	c.t.Helper()
	c.mustID(c.accuser, Accuse{Step: c.step, Client: c.accused, Fault: fault})
}

// tried begins a trial for a fault and plays to the next round, which draws the jury.
func (c *court) tried(fault Fault) *Trial {
	c.t.Helper()
	c.accuse(fault)
	c.round()
	return c.trial()
}

func (c *court) trial() *Trial { return c.Trial(c.accused, c.step) }

// jury returns the clients that may vote now, members first.
func (c *court) jury() (jury []ClientID) {
	for _, id := range append(clientIDs(c.Epoch.Clients), clientIDs(c.Pending)...) {
		if juror, _ := c.Juror(id, c.trial().Slot); juror && !slices.Contains(jury, id) {
			jury = append(jury, id)
		}
	}
	return jury
}

// vote sends the votes of the given number of jurors that have not voted.
func (c *court) vote(guilty bool, jurors int) {
	c.t.Helper()
	for _, id := range c.jury() {
		if jurors == 0 {
			return
		}
		if c.trial() == nil {
			break
		}
		if _, voted := c.Juror(id, c.trial().Slot); !voted {
			c.mustID(id, Vote{Step: c.step, Client: c.accused, Guilty: guilty})
			jurors--
		}
	}
	if jurors > 0 {
		c.t.Fatalf("the trial was over before %d jurors had voted", jurors)
	}
}

// needed returns the number of votes that decide the trial.
func (c *court) needed() int { return (11*int(c.trial().Jurors) + 19) / 20 }

// complaints returns the number of complaints of the accuser.
func (c *court) complaints() int {
	for _, clients := range c.clientLists() {
		if i := indexOf(clients, c.accuser); i >= 0 {
			return int(clients[i].Complaints)
		}
	}
	return 0
}

func (c *court) check() {
	c.t.Helper()
	if err := c.Check(); err != nil {
		c.t.Fatalf("%v\n%s", err, c.String())
	}
	if back, err := Decode(c.AppendTo(nil)); err != nil || back.Hash() != c.Hash() {
		c.t.Fatalf("the state differs after encoding and decoding: %v\n%s", err, c.String())
	}
}

// wantNoTrace checks that the trial is over and that no client is a juror or ejected.
func (c *court) wantNoTrace() {
	c.t.Helper()
	c.check()
	if c.trial() != nil || len(c.Authority.Ejections) > 0 {
		c.t.Errorf("the trial is open, or a member was ejected\n%s", c.String())
	}
	c.wantNoJurors()
}

func (c *court) wantNoJurors() {
	c.t.Helper()
	for _, clients := range c.clientLists() {
		for _, client := range clients {
			if client.Juror|client.Voted != 0 {
				c.t.Errorf("%s is still a juror\n%s", nameOf(client.ID), c.String())
			}
		}
	}
}
