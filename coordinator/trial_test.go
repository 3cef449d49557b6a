package coordinator

import (
	"errors"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/assign"
)

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

func TestAccusationsThatAreRefused(t *testing.T) {
	c := newCourt(t, 12)
	good := Accuse{Step: c.step, Client: c.trainer, Fault: FaultResult}
	accuse := func(alter func(*Accuse)) Accuse { a := good; alter(&a); return a }
	other := c.CurrentRound().Members[c.CurrentRound().owners(c.Config)[0]]
	tests := []struct {
		name  string
		from  ClientID
		alter func(*Accuse)
		want  Code
	}{
		{"of no fault", c.verifier, func(a *Accuse) { a.Fault = 0 }, ErrInvalidAction},
		{"of an unknown fault", c.verifier, func(a *Accuse) { a.Fault = 5 }, ErrInvalidAction},
		{"of itself", c.verifier, func(a *Accuse) { a.Client = c.verifier }, ErrInvalidAction},
		{"in the first round", c.verifier, func(a *Accuse) { a.Step-- }, ErrWrongStep},
		{"in a round to come", c.verifier, func(a *Accuse) { a.Step++ }, ErrWrongStep},
		{"by a stranger", clientID("x"), func(*Accuse) {}, ErrNotMember},
		{"of a stranger", c.verifier, func(a *Accuse) { a.Client = clientID("x") }, ErrNotMember},
		{"by a trainer", other, func(a *Accuse) {
			if a.Client == other {
				a.Client = c.verifier
			}
		}, ErrNotElected},
		{"of somebody else's target", c.verifier, func(a *Accuse) { a.Client = c.notTarget() }, ErrFalseAccusation},
		{"of a trainer's prints", c.verifier, func(a *Accuse) { a.Fault = FaultPrints }, ErrFalseAccusation},
		{"of what a trainer did not reveal", c.verifier, func(a *Accuse) { a.Fault = FaultUnrevealed }, ErrFalseAccusation},
		{"of another trainer's verifier", c.notTarget(), func(a *Accuse) { a.Client, a.Fault = c.verifier, FaultPrints }, ErrNotElected},
		{"of its verifier's result", c.trainer, func(a *Accuse) { a.Client = c.verifier }, ErrNotElected},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a := accuse(test.alter)
			c.refusedTo(test.want, test.from, a)
			if err := c.MayAccuse(test.from, a); !errors.Is(err, test.want) {
				t.Errorf("MayAccuse: %v", err)
			}
		})
	}
	late := c.fork()
	late.rounds(AccuseRounds + 1)
	late.refusedTo(ErrWrongStep, c.verifier, good)
	last := c.fork()
	last.rounds(AccuseRounds)
	last.mustID(c.verifier, good)
	last.check()
	idle := c.fork()
	idle.CurrentRound().Judged = MemberSet{}
	idle.refusedTo(ErrNotElected, c.verifier, good)
	gone := c.fork()
	gone.mustID(c.trainer, Withdraw{Client: c.trainer})
	gone.refusedTo(ErrNotMember, c.verifier, good)
}

// notTarget is a member whom the verifier does not audit.
func (c *court) notTarget() ClientID {
	for _, id := range c.CurrentRound().Members {
		if id != c.trainer && id != c.verifier {
			return id
		}
	}
	return ClientID{}
}

// fork returns a court that goes another way.
func (c *court) fork() *court {
	r := *c.run
	r.State = c.Clone()
	clone := *c
	clone.run = &r
	return &clone
}

// TestWhatDoesNotCountIsNotTried: a trainer whose result no quorum can hold is accused of nothing.
func TestWhatDoesNotCountIsNotTried(t *testing.T) {
	c := newCourt(t, 12)
	c.loseResult(c.trainer)
	c.refusedTo(ErrFalseAccusation, c.verifier, Accuse{Step: c.step, Client: c.trainer, Fault: FaultUnopened})
	c.check()
}

// TestOneTrialEach: nobody is in two trials; who says that somebody did not open says so once an
// epoch; and there are so many trials at a time.
func TestOneTrialEach(t *testing.T) {
	c := newCourt(t, 12)
	c.mustID(c.verifier, Accuse{Step: c.step, Client: c.trainer, Fault: FaultUnopened})
	c.refusedTo(ErrDuplicate, c.verifier, Accuse{Step: c.step, Client: c.trainer, Fault: FaultResult})
	c.check()
	c.Epoch.Trials = nil // as if it were over
	c.refusedTo(ErrDuplicate, c.verifier, Accuse{Step: c.step, Client: c.trainer, Fault: FaultUnopened})
	c.mustID(c.verifier, Accuse{Step: c.step, Client: c.trainer, Fault: FaultResult})

	c = newCourt(t, 12) // who has said that somebody did not reveal can still say that somebody did not open
	member, _ := c.Member(c.verifier)
	member.Unrevealed = true
	c.mustID(c.verifier, Accuse{Step: c.step, Client: c.trainer, Fault: FaultUnopened})

	r := auditedRun(t, 60)
	r.auditAll()
	accused := 0
	for _, member := range r.CurrentRound().verifiers(r.Config) {
		id := r.CurrentRound().Members[member]
		audit, _ := r.AuditOf(r.Progress.Step, id)
		a := Accuse{Step: audit.Step, Client: audit.Trainer, Fault: FaultResult}
		switch err := r.MayAccuse(id, a); {
		case err == nil:
			r.mustID(id, a)
			accused++
		case accused == MaxTrials && !errors.Is(err, ErrFull) && !errors.Is(err, ErrDuplicate):
			t.Fatalf("accusation %d: %v", accused+1, err)
		}
	}
	if accused != MaxTrials || len(r.Epoch.Trials) != MaxTrials {
		t.Errorf("%d trials, want %d", accused, MaxTrials)
	}
}

// TestPrints: two that audited the same can accuse each other, of what they sealed and of not
// revealing it.
func TestPrints(t *testing.T) {
	for _, fault := range []Fault{FaultPrints, FaultUnrevealed} {
		t.Run(fault.String(), func(t *testing.T) {
			r := auditedRun(t, 40)
			for range 20 {
				for _, trainer := range r.CurrentRound().Members {
					pair := r.Auditors(r.Progress.Step, trainer)
					if len(pair) < 2 {
						continue
					}
					a := Accuse{Step: r.Progress.Step, Client: pair[1], Fault: fault}
					r.mustID(pair[0], SealVerdict{Step: a.Step})
					r.mustID(pair[0], Verdict{Step: a.Step})
					r.mustID(pair[1], SealVerdict{Step: a.Step})
					r.refusedTo(ErrFalseAccusation, pair[0], a)
					r.mustID(pair[1], Verdict{Step: a.Step})
					r.mustID(pair[0], a)
					return
				}
				r.rounds(1)
			}
			t.Fatal("no two verifiers audited the same")
		})
	}
}

// TestTrainersAccuseTheirVerifiers: of what they sealed and of not revealing it, once they have
// judged; nobody else does, and not about a result that no quorum can hold.
func TestTrainersAccuseTheirVerifiers(t *testing.T) {
	for _, fault := range []Fault{FaultPrints, FaultUnrevealed} {
		t.Run(fault.String(), func(t *testing.T) {
			c := newCourt(t, 12)
			a := Accuse{Step: c.step, Client: c.verifier, Fault: fault}
			early := c.fork()
			early.RoundOfStep(c.step).Judged = MemberSet{}
			early.refusedTo(ErrNotElected, c.trainer, a)
			lost := c.fork()
			lost.loseResult(c.trainer)
			lost.refusedTo(ErrFalseAccusation, c.trainer, a)
			c.refusedTo(ErrNotElected, c.notTarget(), a)
			c.mustID(c.trainer, a)
			c.check()
			if trial := c.Trial(c.verifier); trial.Accuser != c.trainer || trial.Fault != fault {
				t.Errorf("trial %+v", trial)
			}
			c.Epoch.Trials = nil // as if it were over
			if fault == FaultUnrevealed {
				c.refusedTo(ErrDuplicate, c.trainer, a)
				a.Fault = FaultPrints
			}
			c.mustID(c.trainer, a)
			if member, _ := c.Member(c.trainer); member.Unopened {
				t.Error("it has said that somebody did not open") // which is apart
			}
		})
	}
}

// loseResult has no witness hold the result that a member sent in the round before that of the court.
func (c *court) loseResult(id ClientID) {
	before := c.RoundOfStep(c.step - 1)
	for i := range before.Witnesses {
		before.Witnesses[i].Participants = [len(before.Witnesses[i].Participants)]uint64{}
		for _, other := range before.Members {
			if other != id {
				before.Witnesses[i].Participants.Add(before.Seed, other[:])
			}
		}
	}
}

// TestJuriesAreDrawnByTheNextRound: of its members, in the order of its seed, without the parties.
func TestJuriesAreDrawnByTheNextRound(t *testing.T) {
	for _, members := range []int{5, 12, 34, 50} {
		c := newCourt(t, members)
		c.mustID(c.verifier, Accuse{Step: c.step, Client: c.trainer, Fault: FaultResult})
		if len(c.Trial(c.trainer).Jury) != 0 {
			t.Fatal("there is a jury before the next round")
		}
		c.refusedTo(ErrWrongState, c.trainer, Open{Step: c.step, Blob: [32]byte{1}})
		c.check()
		c.rounds(1)
		c.check()
		trial := c.Trial(c.trainer)
		var want []ClientID
		round := c.CurrentRound()
		for _, member := range assign.Jury(round.Seed, len(round.Members)) {
			if id := round.Members[member]; id != c.trainer && id != c.verifier {
				want = append(want, id)
			}
		}
		if want = want[:min(len(want), MaxJury)]; !slices.Equal(trial.Jury, want) || len(want) != min(members-2, MaxJury) {
			t.Errorf("%d members: jury%s, want%s", members, ids(trial.Jury), ids(want))
		}
	}
}

// TestTooFewToJudge ends the trial: of three members there is one that is no party.
func TestTooFewToJudge(t *testing.T) {
	c := newCourt(t, 3)
	c.mustID(c.verifier, Accuse{Step: c.step, Client: c.trainer, Fault: FaultResult})
	c.rounds(1)
	if c.Trial(c.trainer) != nil || len(c.Authority.Ejections) > 0 {
		t.Errorf("one judges\n%s", c.String())
	}
}

func TestOpeningsAndVotesThatAreRefused(t *testing.T) {
	c := newCourt(t, 12)
	trial := c.tried(FaultResult)
	juror := trial.Jury[0]
	c.refusedTo(ErrNotMember, c.verifier, Open{Step: c.step, Blob: [32]byte{1}})
	c.refusedTo(ErrWrongStep, c.trainer, Open{Step: c.step + 1, Blob: [32]byte{1}})
	c.refusedTo(ErrInvalidAction, c.trainer, Open{Step: c.step})
	c.refusedTo(ErrWrongState, juror, Vote{Step: c.step, Client: c.trainer})
	late := c.fork()
	late.rounds(OpenRounds)
	late.refusedTo(ErrWrongStep, c.trainer, Open{Step: c.step, Blob: [32]byte{1}})
	c.open()
	c.refusedTo(ErrDuplicate, c.trainer, Open{Step: c.step, Blob: [32]byte{2}})
	c.refusedTo(ErrNotElected, c.verifier, Vote{Step: c.step, Client: c.trainer})
	c.refusedTo(ErrNotElected, c.trainer, Vote{Step: c.step, Client: c.trainer})
	c.refusedTo(ErrNotMember, clientID("x"), Vote{Step: c.step, Client: c.trainer})
	c.refusedTo(ErrNotMember, juror, Vote{Step: c.step, Client: juror})
	c.refusedTo(ErrWrongStep, juror, Vote{Step: c.step + 1, Client: c.trainer})
	c.mustID(juror, Vote{Step: c.step, Client: c.trainer})
	c.refusedTo(ErrDuplicate, juror, Vote{Step: c.step, Client: c.trainer, Guilty: true})
	c.check()
}

// TestVerdictsOfJuries: the accused is ejected, or the accuser, unless that said only that it was shown
// nothing; a verifier of a trainer as well as a trainer that it audited.
func TestVerdictsOfJuries(t *testing.T) {
	accused, accuser := func(c *court) ClientID { return c.accused }, func(c *court) ClientID { return c.accuser }
	for _, test := range []struct {
		name    string
		fault   Fault
		guilty  bool
		ejected func(*court) ClientID
		reason  EjectionReason
	}{
		{"guilty", FaultResult, true, accused, FoundGuilty},
		{"guilty of not opening", FaultUnopened, true, accused, FoundGuilty},
		{"guilty of wrong prints", FaultPrints, true, accused, FoundGuilty},
		{"guilty of not revealing", FaultUnrevealed, true, accused, FoundGuilty},
		{"innocent", FaultResult, false, accuser, AccusedWrongly},
		{"innocent of not opening", FaultUnopened, false, nil, 0},
		{"innocent of wrong prints", FaultPrints, false, accuser, AccusedWrongly},
		{"innocent of not revealing", FaultUnrevealed, false, nil, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCourt(t, 12) // a jury of ten: seven decide
			c.tried(test.fault)
			c.open()
			c.vote(!test.guilty, 3)
			c.vote(test.guilty, 6)
			if c.Trial(c.accused) == nil {
				t.Fatal("six of ten decided")
			}
			c.check()
			c.vote(test.guilty, 1)
			c.check()
			if c.Trial(c.accused) != nil {
				t.Fatal("seven of ten do not decide")
			}
			if test.ejected == nil {
				if len(c.Authority.Ejections) > 0 {
					t.Errorf("somebody was ejected\n%s", c.String())
				}
				return
			}
			id := test.ejected(c)
			client, _ := c.Member(id)
			want := Ejection{Client: id, Until: c.Progress.Epoch + 3, Reason: test.reason} // ejection_epochs = 2
			if got, _ := c.ejection(id); got != want || client.State != Ejected || len(c.Authority.Ejections) != 1 {
				t.Errorf("ejected %+v, want %+v\n%s", got, want, c.String())
			}
			c.rounds(1)
			if _, ok := c.Member(id); ok {
				t.Error("it is still a member")
			}
			c.refusedTo(ErrNotAuthorised, id, Join{Epoch: c.Progress.Epoch})
		})
	}
}

// TestOneSignOfLife: any one makes who did not open somebody to vote on.
func TestOneSignOfLife(t *testing.T) {
	for _, sign := range []struct {
		name string
		give func(*court, *Round, int)
	}{
		{"a proof", func(c *court, r *Round, member int) {
			r.Witnesses = append(r.Witnesses, Witness{Member: uint16(member)})
		}},
		{"a seal", func(_ *court, r *Round, member int) { r.Sealed.add(member) }},
		{"a result", func(c *court, r *Round, _ int) {
			for i := range r.WitnessesNeeded {
				r.Witnesses[i].Participants.Add(r.Seed, c.trainer[:])
			}
		}},
	} {
		c := newCourt(t, 12)
		c.tried(FaultUnopened)
		round := c.CurrentRound()
		for i := range 10 {
			round.Witnesses = append(round.Witnesses, Witness{Member: uint16(i)})
		}
		member, _ := round.MemberIndex(c.trainer)
		round.Witnesses = slices.DeleteFunc(round.Witnesses, func(w Witness) bool { return int(w.Member) == member })
		if !c.isGone(c.trainer) {
			t.Error("there without a sign")
		}
		sign.give(c, round, member)
		if c.isGone(c.trainer) {
			t.Errorf("gone in spite of %s", sign.name)
		}
	}
}

// TestNothingShownBlamesNobody: who accuses one that shows nothing is not punished for it.
func TestNothingShownBlamesNobody(t *testing.T) {
	c := newCourt(t, 12)
	c.tried(FaultResult)
	c.rounds(OpenRounds)
	c.vote(false, 7)
	if c.Trial(c.trainer) != nil || len(c.Authority.Ejections) > 0 {
		t.Errorf("still tried, or somebody was ejected\n%s", c.String())
	}
}

// TestSilenceIsVotedOn: who does not open in time is judged all the same: jurors ask it themselves.
func TestSilenceIsVotedOn(t *testing.T) {
	c := newCourt(t, 12)
	c.tried(FaultUnopened)
	c.rounds(OpenRounds - 1)
	c.refusedTo(ErrWrongState, c.Trial(c.trainer).Jury[0], Vote{Step: c.step, Client: c.trainer, Guilty: true})
	c.rounds(1)
	c.check()
	c.vote(true, 7)
	if _, out := c.ejection(c.trainer); !out {
		t.Errorf("nobody was ejected\n%s", c.String())
	}
}

// TestGoneIsNotGuilty: who has left, or was found late, when it should have opened is not tried, but
// does not come back into the epoch.
func TestGoneIsNotGuilty(t *testing.T) {
	for _, test := range []struct {
		name string
		goes func(*court)
	}{
		{"left at once", func(c *court) { c.mustID(c.trainer, Withdraw{Client: c.trainer}) }},
		{"left at last", func(c *court) {
			c.rounds(OpenRounds - 1)
			c.mustID(c.trainer, Withdraw{Client: c.trainer})
		}},
		{"silent", func(c *court) { c.silent = c.trainer }},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCourt(t, 12)
			trial := c.tried(FaultUnopened)
			until := trial.OpenUntil()
			test.goes(c)
			for c.Progress.Step <= until {
				if c.Trial(c.trainer) == nil {
					t.Fatalf("over in step %d", c.Progress.Step)
				}
				c.rounds(1)
				c.check()
			}
			i := indexOf(c.Epoch.Exited, c.trainer)
			if c.Trial(c.trainer) != nil || len(c.Authority.Ejections) > 0 || i < 0 || c.MayReturn(c.trainer) {
				t.Errorf("still tried, ejected, a member, or may return\n%s", c.String())
			}
			c.refusedTo(ErrFull, c.trainer, Return{Epoch: c.Progress.Epoch})
		})
	}
}

// TestLeavingDoesNotHelp: who leaves when it has opened is found guilty wherever it is.
func TestLeavingDoesNotHelp(t *testing.T) {
	for _, joins := range []bool{false, true} {
		c := newCourt(t, 12)
		c.tried(FaultResult)
		c.open()
		c.mustID(c.trainer, Withdraw{Client: c.trainer})
		if joins {
			c.mustID(c.trainer, Join{Epoch: c.Progress.Epoch})
		}
		c.rounds(1)
		c.vote(true, 7)
		c.check()
		if c.IsPending(c.trainer) || c.MayReturn(c.trainer) || !c.isEjected(c.trainer) {
			t.Errorf("joined %t: it escaped\n%s", joins, c.String())
		}
		c.refusedTo(ErrNotAuthorised, c.trainer, Return{Epoch: c.Progress.Epoch})
	}
}

// TestUndecided: nobody loses, and who did not vote is late; who does so again is dropped.
func TestUndecided(t *testing.T) {
	c := newCourt(t, 12)
	trial := c.tried(FaultResult)
	jury, until := slices.Clone(trial.Jury), trial.VoteUntil()
	c.open()
	c.vote(true, 6)
	again, _ := c.Member(jury[7])
	again.Lateness = Late
	slow, _ := c.Member(jury[8])
	slow.Lateness = Slow
	for c.Progress.Step < until {
		c.rounds(1)
		c.check()
	}
	if c.Trial(c.trainer) == nil {
		t.Fatal("over too early")
	}
	c.refusedTo(ErrDuplicate, jury[0], Vote{Step: c.step, Client: c.trainer})
	c.rounds(1)
	c.check()
	if c.Trial(c.trainer) != nil || len(c.Authority.Ejections) > 0 {
		t.Fatalf("still tried, or somebody was ejected\n%s", c.String())
	}
	for i, id := range jury {
		client, ok := c.Member(id)
		switch {
		case i == 7:
			if ok || c.Epoch.Exited[indexOf(c.Epoch.Exited, id)].State != Dropped {
				t.Errorf("juror %d was not dropped", i)
			}
		case i < 6 && client.Lateness != OnTime, i >= 6 && i != 8 && client.Lateness != Late, i == 8 && client.Lateness != Slow:
			t.Errorf("juror %d: %+v", i, client)
		}
	}
}

// TestTrialsEndWithTheEpoch: in Cooldown jurors may still vote, afterwards nobody is tried.
func TestTrialsEndWithTheEpoch(t *testing.T) {
	c := newCourt(t, 12)
	c.Config.RoundsPerEpoch = c.Progress.Step - c.Epoch.StartStep + 2
	c.tried(FaultResult)
	c.rounds(1)
	if c.RunState != Cooldown {
		t.Fatal(c.RunState)
	}
	c.check()
	c.open()
	c.vote(true, 6)
	ended := c.fork()
	ended.finishEpoch("x")
	ended.check()
	if len(ended.Epoch.Trials) > 0 || len(ended.Authority.Ejections) > 0 {
		t.Errorf("tried after the epoch\n%s", ended.String())
	}
	c.vote(true, 1)
	c.finishEpoch("x")
	c.check()
	if !c.isEjected(c.trainer) || c.IsPending(c.trainer) {
		t.Errorf("found guilty in Cooldown, and goes on\n%s", c.String())
	}
}

// TestHowLongCheatsStayOut: ejection_epochs counts for who cheated, not for the authority's word.
func TestHowLongCheatsStayOut(t *testing.T) {
	for _, epochs := range []uint16{0, 1, 65535} {
		c := newCourt(t, 12)
		c.Config.EjectionEpochs = epochs
		c.tried(FaultResult)
		c.open()
		c.vote(true, 7)
		two := c.CurrentRound().Members[3]
		if two == c.trainer {
			two = c.CurrentRound().Members[4]
		}
		c.mustID(c.verifier, Equivocation{Client: two, Step: c.Progress.Step})
		c.mustID(host, Eject{Client: c.verifier})
		c.check()
		for id, want := range map[ClientID]uint32{c.trainer: 1 + uint32(epochs), two: 1 + uint32(epochs), c.verifier: 2} {
			if got, _ := c.ejection(id); got.Until != c.Progress.Epoch+want {
				t.Errorf("%d epochs: out until %d, want %d", epochs, got.Until, c.Progress.Epoch+want)
			}
		}
	}
}

// TestTrialsThatEndTheEpochSpendTheDraw: the draw that a round would have begun with is shown with the
// tick, since nobody can know before it that a trial leaves too few members for one. So it is
// nobody's draw any more, and the tick does the same again with what was kept of it.
func TestTrialsThatEndTheEpochSpendTheDraw(t *testing.T) {
	c := newCourt(t, 12)
	trial := c.tried(FaultResult)
	silent, until := trial.Jury[7], trial.VoteUntil()
	c.open()
	c.vote(true, 6)
	for c.Progress.Step < until {
		c.rounds(1)
	}
	juror, _ := c.Member(silent)
	juror.Lateness = Late
	c.Config.MinClients = uint16(c.HealthyCount()) // dropping the silent juror ends the epoch
	c.DrawCommitment = testLinks[0]
	seeds := c.SeedChain

	c.auditAll()
	c.witnessAll()
	for c.RunState != Cooldown {
		again, committed, draw := c.Clone(), c.DrawCommitment, c.testDraw(c.now)
		c.now += second
		if !c.Tick(c.now, draw) {
			continue
		}
		if c.DrawCommitment == committed {
			draw = [32]byte{} // what hosts keep then
		}
		if !again.Tick(c.now, draw) || again.Hash() != c.Hash() {
			t.Fatalf("the tick does something else with the draw that is kept: %s, %s", c.RunState, again.RunState)
		}
	}
	if c.HealthyCount() >= int(c.Config.MinClients) || c.DrawCommitment != testLinks[1] || c.SeedChain != seeds {
		t.Errorf("%d healthy, commitment %x\n%s", c.HealthyCount(), c.DrawCommitment, c.String())
	}
}
