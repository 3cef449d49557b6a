package coordinator

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/assign"
)

// court is a run in which a verifier has judged a trainer.
type court struct {
	*run
	verifier, trainer ClientID
	step              uint32 // in which verifier verified
}

// auditedRun returns a run of so many members, of which four tenths verify, in the second round of
// its epoch.
func auditedRun(t testing.TB, members int) *run {
	t.Helper()
	config := longConfig()
	config.VerificationPercent, config.EjectionEpochs = 40, 2
	var names []string
	for i := range members {
		names = append(names, fmt.Sprintf("m%03d", i))
	}
	r := newRun(t, config, names...)
	r.round()
	return r
}

// newCourt returns a run of so many members in which all verifiers have judged, and one of them
// with its target, which has another part in this round.
func newCourt(t testing.TB, members int) *court {
	t.Helper()
	r := auditedRun(t, members)
	r.auditAll()
	c := &court{run: r, step: r.Progress.Step}
	verifiers := r.CurrentRound().verifiers(r.Config)
	for _, member := range verifiers {
		id := r.CurrentRound().Members[member]
		audit, _ := r.AuditOf(c.step, id)
		target, _ := r.CurrentRound().MemberIndex(audit.Trainer)
		if !slices.Contains(verifiers, target) {
			c.verifier, c.trainer = id, audit.Trainer
			return c
		}
	}
	t.Fatal("every verifier audits another one")
	return nil
}

// round plays what is left of the round: all but who is silent prove, and nobody audits.
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
		r.Tick(r.now, testDraw(r.now))
	}
}

// rounds plays so many rounds in which all audit, but those named.
func (r *run) rounds(n int, but ...ClientID) {
	r.t.Helper()
	for range n {
		r.auditAll(but...)
		r.round()
	}
}

// auditAll lets all that have to audit seal and judge, but those named.
func (r *run) auditAll(but ...ClientID) {
	r.t.Helper()
	for _, id := range clientIDs(r.Epoch.Clients) {
		for _, audit := range r.Audits(id) {
			if slices.Contains(but, id) || audit.Judged || id == r.silent {
				continue
			}
			if !audit.Sealed {
				r.mustID(id, SealVerdict{Step: audit.Step, Seal: [32]byte{1}})
			}
			r.mustID(id, Verdict{Step: audit.Step, Body: [32]byte{1}})
		}
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

// tried accuses the trainer and plays to the next round, in which there is a jury.
func (c *court) tried(fault Fault) *Trial {
	c.t.Helper()
	c.mustID(c.verifier, Accuse{Step: c.step, Client: c.trainer, Fault: fault})
	c.rounds(1)
	return c.Trial(c.trainer)
}

// vote lets so many jurors that have not voted do so.
func (c *court) vote(guilty bool, jurors int) {
	c.t.Helper()
	for _, id := range slices.Clone(c.Trial(c.trainer).Jury) {
		if trial := c.Trial(c.trainer); jurors > 0 && trial != nil && !trial.HasVoted(id) {
			c.mustID(id, Vote{Step: c.step, Client: c.trainer, Guilty: guilty, Body: [32]byte{1}})
			jurors--
		}
	}
	if jurors > 0 {
		c.t.Fatalf("the trial was over before %d jurors had voted", jurors)
	}
}

func (c *court) open() { c.mustID(c.trainer, Open{Step: c.step, Blob: [32]byte{9}}) }

func (c *court) check() {
	c.t.Helper()
	if err := c.Check(); err != nil {
		c.t.Fatalf("%v\n%s", err, c.String())
	}
	if back, err := Decode(c.AppendTo(nil)); err != nil || back.Hash() != c.Hash() {
		c.t.Fatalf("does not go through its bytes: %v\n%s", err, c.String())
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

func TestSealsAndVerdictsThatAreRefused(t *testing.T) {
	r := auditedRun(t, 10)
	step := r.Progress.Step
	round := r.CurrentRound()
	verifier := round.Members[round.verifiers(r.Config)[0]]
	trainer := round.Members[round.owners(r.Config)[0]]
	r.refusedTo(ErrInvalidAction, verifier, Verdict{Step: step})
	r.refusedTo(ErrNotElected, trainer, SealVerdict{Step: step})
	r.refusedTo(ErrNotElected, trainer, Verdict{Step: step})
	r.refusedTo(ErrNotMember, clientID("x"), SealVerdict{Step: step})
	r.refusedTo(ErrWrongStep, verifier, SealVerdict{Step: step - 1}) // the epoch's first round
	r.refusedTo(ErrWrongStep, verifier, SealVerdict{Step: step + 1})
	r.mustID(verifier, SealVerdict{Step: step})
	r.refusedTo(ErrDuplicate, verifier, SealVerdict{Step: step})
	r.mustID(verifier, Verdict{Step: step})
	r.refusedTo(ErrDuplicate, verifier, Verdict{Step: step})
	late := round.Members[round.verifiers(r.Config)[1]]
	lost := round.Members[round.verifiers(r.Config)[2]]
	r.mustID(lost, Withdraw{Client: lost})
	r.refusedTo(ErrNotMember, lost, SealVerdict{Step: step})
	r.round()
	r.mustID(late, SealVerdict{Step: step})
	r.until(RoundTrain)
	r.mustID(late, Verdict{Step: step})
	r.round()
	r.refusedTo(ErrWrongStep, late, SealVerdict{Step: step})
	r.finishEpoch("x")
	r.refusedTo(ErrWrongState, late, SealVerdict{Step: r.Progress.Step})
}

// TestNobodyAuditsItself: who trained the batch that it would have to audit takes the next one, and
// the only trainer nobody's.
func TestNobodyAuditsItself(t *testing.T) {
	own := 0
	for seed := range uint64(300) {
		round := Round{Seed: seed, BatchSeed: seed * 7, Height: 1, BatchSize: 4, Members: []ClientID{{1}, {2}, {3}, {4}}}
		before := Round{BatchSeed: seed * 3, BatchSize: 4, Members: round.Members}
		config := Config{VerificationPercent: 50}
		owners := before.owners(config)
		for rank, member := range round.verifiers(config) {
			target := auditTarget(&round, &before, config, member)
			if drawn := owners[assign.Target(round.Seed, rank, 2, len(owners))]; drawn == member {
				own++
			} else if drawn != target {
				t.Fatalf("seed %d: member %d audits %d, drawn %d", seed, member, target, drawn)
			}
			if target == member || !slices.Contains(owners, target) || !audits(&round, &before, config, member) {
				t.Fatalf("seed %d: member %d audits %d of %v", seed, member, target, owners)
			}
			before := before
			before.BatchSize = 1
			only := before.owners(config)[0]
			if target := auditTarget(&round, &before, config, member); (target < 0) != (only == member) || audits(&round, &before, config, member) != (target >= 0) {
				t.Fatalf("seed %d: member %d audits %d, the only one with a batch is %d", seed, member, target, only)
			}
		}
	}
	if own == 0 {
		t.Error("nobody drew itself")
	}
}

func TestAuditorsAreWhoAudit(t *testing.T) {
	r := auditedRun(t, 20)
	found := 0
	for _, trainer := range r.CurrentRound().Members {
		for _, id := range r.Auditors(r.Progress.Step, trainer) {
			if audit, ok := r.AuditOf(r.Progress.Step, id); !ok || audit.Trainer != trainer {
				t.Fatalf("%s is said to audit %s", nameOf(id), nameOf(trainer))
			}
			found++
		}
	}
	if want := len(r.CurrentRound().verifiers(r.Config)); found != want {
		t.Errorf("%d audits, want %d", found, want)
	}
	if r.Auditors(r.Progress.Step-1, clientID("m000")) != nil || r.Audits(clientID("x")) != nil {
		t.Error("the first round is audited, or a stranger audits")
	}
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
		{"of an unknown fault", c.verifier, func(a *Accuse) { a.Fault = 4 }, ErrInvalidAction},
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
	before := c.RoundOfStep(c.step - 1)
	for i := range before.Witnesses {
		before.Witnesses[i].Participants = [len(before.Witnesses[i].Participants)]uint64{}
		for _, id := range before.Members {
			if id != c.trainer {
				before.Witnesses[i].Participants.Add(before.Seed, id[:])
			}
		}
	}
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

// TestPrints: two that audited the same can accuse each other.
func TestPrints(t *testing.T) {
	r := auditedRun(t, 40)
	for range 20 {
		for _, trainer := range r.CurrentRound().Members {
			pair := r.Auditors(r.Progress.Step, trainer)
			if len(pair) < 2 {
				continue
			}
			a := Accuse{Step: r.Progress.Step, Client: pair[1], Fault: FaultPrints}
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

func TestVerdictsOfJuries(t *testing.T) {
	for _, test := range []struct {
		name    string
		fault   Fault
		guilty  bool
		ejected func(*court) ClientID
		reason  EjectionReason
	}{
		{"guilty", FaultResult, true, func(c *court) ClientID { return c.trainer }, FoundGuilty},
		{"guilty of not opening", FaultUnopened, true, func(c *court) ClientID { return c.trainer }, FoundGuilty},
		{"innocent", FaultResult, false, func(c *court) ClientID { return c.verifier }, AccusedWrongly},
		{"innocent of not opening", FaultUnopened, false, nil, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCourt(t, 12) // a jury of ten: seven decide
			c.tried(test.fault)
			c.open()
			c.vote(!test.guilty, 3)
			c.vote(test.guilty, 6)
			if c.Trial(c.trainer) == nil {
				t.Fatal("six of ten decided")
			}
			c.check()
			c.vote(test.guilty, 1)
			c.check()
			if c.Trial(c.trainer) != nil {
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

// TestIdleVerifiersAreLate, and are dropped the second time.
func TestIdleVerifiersAreLate(t *testing.T) {
	r := auditedRun(t, 10)
	found := map[ClientID]int{}
	for range 20 {
		round := *r.CurrentRound()
		idle := round.Members[round.verifiers(r.Config)[0]]
		step := r.Progress.Step
		judgesLater := round.Members[round.verifiers(r.Config)[1]]
		r.rounds(1, idle, judgesLater)
		if client, ok := r.Member(idle); ok && found[idle] == 0 && client.Lateness != OnTime {
			t.Fatalf("step %d: late before its second round was over", step)
		}
		r.rounds(1, idle)
		found[idle]++
		client, ok := r.Member(idle)
		if found[idle] == 1 && (!ok || client.Lateness != Late) {
			t.Fatalf("step %d: %s is not late\n%s", step, nameOf(idle), r.String())
		}
		if found[idle] == 2 {
			if ok || r.Epoch.Exited[indexOf(r.Epoch.Exited, idle)].State != Dropped {
				t.Fatalf("step %d: %s was not dropped\n%s", step, nameOf(idle), r.String())
			}
			return
		}
	}
	t.Fatal("nobody was idle twice")
}

// TestWhoIsNotFoundIdle: who was not there, nobody in a round without a quorum, and nobody when the
// epoch's first round is followed.
func TestWhoIsNotFoundIdle(t *testing.T) {
	r := auditedRun(t, 10)
	for _, c := range r.Epoch.Clients {
		if c.Lateness != OnTime {
			t.Fatal("late in the first round")
		}
	}
	idle := r.CurrentRound().Members[r.CurrentRound().verifiers(r.Config)[0]]
	r.mustID(idle, Withdraw{Client: idle})
	r.rounds(1)
	r.mustID(idle, Return{Epoch: r.Progress.Epoch})
	r.rounds(1)
	if client, ok := r.Member(idle); !ok || client.Lateness != OnTime {
		t.Errorf("late for a round that it left: %+v", client)
	}
	r.round() // nobody audits
	if err := r.Check(); err != nil {
		t.Fatal(err)
	}
	r.until(Cooldown) // nobody witnesses either
	for _, c := range r.Epoch.Clients {
		if c.Lateness != OnTime {
			t.Errorf("%s is late by a round without a quorum", nameOf(c.ID))
		}
	}
}

// TestDroppedVerifiersMayEndTheEpoch: where dropping leaves fewer than min_clients no round begins.
func TestDroppedVerifiersMayEndTheEpoch(t *testing.T) {
	r := auditedRun(t, 10)
	r.Config.MinClients, r.Config.InitMinClients = 10, 10
	idle := r.CurrentRound().Members[r.CurrentRound().verifiers(r.Config)[0]]
	client, _ := r.Member(idle)
	client.Lateness = Late
	r.rounds(1, idle)
	if r.RunState != RoundTrain {
		t.Fatal(r.RunState)
	}
	r.rounds(1, idle)
	if r.RunState != Cooldown {
		t.Errorf("%s with %d of 10 members", r.RunState, r.HealthyCount())
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
