package coordinator

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

// court is a run in which one member has found that the result of another one is wrong.
type court struct {
	*run
	accuser, accused ClientID
	step             uint32 // of the result
}

// auditedRun returns a run of so many members, of which four tenths train nothing, in the second
// round of its epoch.
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

// member is the id of the member of a number. The accuser is that of 0, the accused that of 1.
func member(i int) ClientID { return clientID(memberName(i)) }

func newCourt(t testing.TB, members int) *court {
	t.Helper()
	r := auditedRun(t, members)
	return &court{run: r, accuser: member(0), accused: member(1), step: r.Progress.Step - 1}
}

// fork returns a court that goes another way.
func (c *court) fork() *court {
	r := *c.run
	r.State = c.Clone()
	clone := *c
	clone.run = &r
	return &clone
}

// round plays what is left of the round: all but who is silent prove.
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

// refusedTo wants an action refused with a code.
func (r *run) refusedTo(want Code, id ClientID, a Action) {
	r.t.Helper()
	before := r.Hash()
	r.nonce++
	if err := r.Apply(id, r.nonce, a); !errors.Is(err, want) {
		r.t.Fatalf("%s: %+v: %v, want %v", nameOf(id), a, err, want)
	}
	if r.Hash() != before {
		r.t.Fatalf("%+v was refused and changed the state", a)
	}
}

// ejection returns why and until when a client is kept out.
func (s *State) ejection(id ClientID) (Ejection, bool) {
	i := slices.IndexFunc(s.Authority.Ejections, func(e Ejection) bool { return e.Client == id })
	if i < 0 {
		return Ejection{}, false
	}
	return s.Authority.Ejections[i], true
}

// accuse begins the trial of a fault.
func (c *court) accuse(fault Fault) {
	c.t.Helper()
	c.mustID(c.accuser, Accuse{Step: c.step, Client: c.accused, Fault: fault})
}

// tried begins the trial of a fault and plays to the next round, in which there is a jury.
func (c *court) tried(fault Fault) *Trial {
	c.t.Helper()
	c.accuse(fault)
	c.round()
	return c.trial()
}

func (c *court) trial() *Trial { return c.Trial(c.accused, c.step) }

// jury are those that may vote now, the members first.
func (c *court) jury() (jury []ClientID) {
	for _, id := range append(clientIDs(c.Epoch.Clients), clientIDs(c.Pending)...) {
		if juror, _ := c.Juror(id, c.trial().Slot); juror && !slices.Contains(jury, id) {
			jury = append(jury, id)
		}
	}
	return jury
}

// vote lets so many jurors that have not voted do so.
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

// needed is how many votes decide.
func (c *court) needed() int { return (11*int(c.trial().Jurors) + 19) / 20 }

// complaints are those of the accuser.
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
		c.t.Fatalf("does not go through its bytes: %v\n%s", err, c.String())
	}
}

// wantNoTrace wants the trial over, and nobody a juror or ejected.
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
