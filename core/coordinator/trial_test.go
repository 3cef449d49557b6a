package coordinator

import (
	"math"
	"slices"
	"testing"

	"github.com/psyche-go/psyche/core/assign"
)

// TestJuriesAreDrawnByTheNextRound checks that the jury consists of members of the next round, in
// the order of its seed, without the parties, and regardless of the state of their optimizers.
func TestJuriesAreDrawnByTheNextRound(t *testing.T) {
	for _, members := range []int{4, 5, 12, 34, 98, 99, 130} {
		c := newCourt(t, members)
		for i := 2; i < members; i += 2 {
			c.client(member(i)).OptimizerSince = c.Progress.Step
		}
		c.accuse(FaultResult)
		c.check()
		if c.refusedTo(ErrNotElected, member(2), Vote{Step: c.step, Client: c.accused}); len(c.jury()) > 0 {
			t.Fatal("there is a jury before the next round")
		}
		c.round()
		c.check()
		var want []ClientID
		round := c.CurrentRound()
		for _, m := range assign.Jury(round.Seed, len(round.Members)) {
			if id := round.Members[m]; id != c.accused && id != c.accuser && len(want) < 96 {
				want = append(want, id)
			}
		}
		if len(want) != min(members-2, 96) || int(c.trial().Jurors) != len(want) || len(c.jury()) != len(want) {
			t.Errorf("%d members: %d jurors, %d can vote, want %d", members, c.trial().Jurors, len(c.jury()), len(want))
		}
		for _, id := range want {
			if juror, voted := c.Juror(id, c.trial().Slot); !juror || voted {
				t.Errorf("%d members: %s is not a juror, or has voted", members, nameOf(id))
			}
		}
	}
}

// TestTooFewToJudge checks that a trial ends as a complaint if too few members can judge. Of three
// members, only one is not a party.
func TestTooFewToJudge(t *testing.T) {
	c := newCourt(t, 3)
	c.tried(FaultResult)
	c.wantNoTrace()
	if c.complaints() != 1 {
		t.Errorf("%d complaints", c.complaints())
	}
}

func TestVotesThatAreRefused(t *testing.T) {
	c := newCourt(t, 12)
	c.tried(FaultResult)
	juror, vote := c.jury()[0], Vote{Step: c.step, Client: c.accused, Guilty: true}
	c.refusedTo(ErrNotMember, juror, Vote{Step: c.step + 1, Client: c.accused})
	c.refusedTo(ErrNotMember, juror, Vote{Step: c.step, Client: juror})
	c.refusedTo(ErrNotElected, c.accuser, vote)
	c.refusedTo(ErrNotElected, c.accused, vote)
	c.refusedTo(ErrNotElected, clientID("x"), vote)
	gone := c.jury()[1]
	c.mustID(gone, Withdraw{Client: gone})
	c.refusedTo(ErrNotElected, gone, vote)
	c.round()
	c.refusedTo(ErrNotElected, gone, vote) // in the list of members that left
	c.mustID(juror, vote)
	vote.Guilty = false
	c.refusedTo(ErrDuplicate, juror, vote)
	c.check()
	if trial := c.trial(); trial.Guilty != 1 || trial.Innocent != 0 || trial.Jurors != 10 {
		t.Errorf("trial %+v", trial)
	}
	c.Closed, c.PendingPause = false, false
	c.RunState = Paused
	c.refusedTo(ErrHalted, c.jury()[2], vote)
}

// TestVerdictsOfJuries checks that eleven twentieths of all jurors decide. A jury ejects the
// accused or the accuser. An accusation of silence that the jury does not confirm is one more
// complaint of the accuser. No other member is affected.
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
		{"guilty of silence", FaultSilent, true, accused, FoundGuilty},
		{"innocent", FaultResult, false, accuser, AccusedWrongly},
		{"innocent of silence", FaultSilent, false, nil, 0},
	} {
		for _, size := range []struct{ members, needed int }{{4, 2}, {12, 6}, {22, 11}, {23, 12}, {98, 53}, {120, 53}} {
			t.Run(test.name, func(t *testing.T) {
				c := newCourt(t, size.members)
				c.tried(test.fault)
				others := min(size.needed-1, int(c.trial().Jurors)-size.needed)
				c.vote(!test.guilty, others)
				c.vote(test.guilty, size.needed-1)
				if c.trial() == nil {
					t.Fatalf("%d of %d votes decide the trial", size.needed-1, size.members-2)
				}
				c.check()
				before := c.Clone()
				c.vote(test.guilty, 1)
				c.check()
				c.wantNoJurors()
				if c.trial() != nil {
					t.Fatalf("%d of %d votes do not decide the trial", size.needed, size.members-2)
				}
				if test.ejected == nil {
					if len(c.Authority.Ejections) > 0 || c.complaints() != 1 {
						t.Errorf("a member was ejected, or %d complaints\n%s", c.complaints(), c.String())
					}
					return
				}
				c.wantOnly(test.ejected(c), test.reason, &before)
			})
		}
	}
}

// wantOnly checks that the only change to members since before is one ejection.
func (c *court) wantOnly(id ClientID, reason EjectionReason, before *State) {
	c.t.Helper()
	want := Ejection{Client: id, Until: c.Progress.Epoch + 3, Reason: reason} // ejection_epochs = 2
	if got, _ := c.ejection(id); got != want || len(c.Authority.Ejections) != 1 || c.complaints() != 0 {
		c.t.Errorf("ejected %+v, want %+v\n%s", got, want, c.String())
	}
	for i, client := range c.Epoch.Clients {
		was := before.Epoch.Clients[i]
		if client.ID == id {
			was.State = Ejected
		}
		was.Juror, was.Voted, was.Nonce, was.Active = 0, 0, client.Nonce, client.Active
		if client != was {
			c.t.Errorf("%+v, was %+v", client, was)
		}
	}
	c.round()
	if _, ok := c.Member(id); ok {
		c.t.Error("the ejected client is still a member")
	}
	c.refusedTo(ErrNotAuthorised, id, Join{Epoch: c.Progress.Epoch})
}

// TestGuiltyClientIsEjectedInEveryState checks that a guilty client is ejected in every state of
// the run, and in whatever list it is.
func TestGuiltyClientIsEjectedInEveryState(t *testing.T) {
	leave := func(c *court) { c.mustID(c.accused, Withdraw{Client: c.accused}) }
	for name, goes := range map[string]func(*court){
		"stays":                 func(*court) {},
		"leaves":                leave,
		"left":                  func(c *court) { leave(c); c.round() },
		"joined again":          func(c *court) { leave(c); c.mustID(c.accused, Join{}) },
		"left and joined again": func(c *court) { leave(c); c.round(); c.mustID(c.accused, Join{}) },
		"returned":              func(c *court) { leave(c); c.round(); c.mustID(c.accused, Return{}) },
		"joined and left again": func(c *court) { c.mustID(c.accused, Join{}); leave(c) },
		"in RoundWitness":       func(c *court) { c.witnessAll(); c.until(RoundWitness) },
		"in Cooldown":           func(c *court) { c.cooldown() },
		"between epochs":        func(c *court) { c.cooldown(); c.finishEpoch("x") },
		"in Warmup":             func(c *court) { c.cooldown(); c.finishEpoch("x"); c.until(Warmup) },
		"in Warmup, ready":      func(c *court) { c.toWarmup(); c.mustID(c.accused, Ready{Epoch: c.Progress.Epoch}) },
		"in the next epoch":     func(c *court) { c.cooldown(); c.finishEpoch("x"); c.startTraining() },
		"left an epoch ago":     func(c *court) { leave(c); c.cooldown(); c.finishEpoch("x"); c.startTraining() },
		"left two epochs ago":   func(c *court) { leave(c); c.nextEpoch(); c.nextEpoch() },
		"is a member again":     func(c *court) { leave(c); c.mustID(c.accused, Join{}); c.nextEpoch() },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCourt(t, 12)
			c.tried(FaultResult)
			goes(c)
			c.check()
			c.vote(true, c.needed())
			c.check()
			if got, _ := c.ejection(c.accused); got.Reason != FoundGuilty || c.IsPending(c.accused) || c.isHealthy(c.accused) || c.MayReturn(c.accused) {
				t.Errorf("the guilty client escaped\n%s", c.String())
			}
			c.wantNoJurors()
			for _, clients := range c.clientLists() {
				if i := indexOf(clients, c.accused); i >= 0 && clients[i].State != Ejected {
					t.Errorf("the guilty client has the state %s\n%s", clients[i].State, c.String())
				}
			}
			c.refusedTo(ErrNotAuthorised, c.accused, Join{Epoch: c.Progress.Epoch})
			c.until(RoundTrain)
			c.check()
			if c.round(); c.isHealthy(c.accused) {
				t.Error("the guilty client is a member again")
			}
		})
	}
}

func (c *court) toWarmup() { c.cooldown(); c.finishEpoch("x"); c.until(Warmup) }

// nextEpoch plays to the first round of the next epoch.
func (c *court) nextEpoch() {
	c.Config.RoundsPerEpoch = max(3, c.Progress.Step-c.Epoch.StartStep+1)
	c.finishEpoch("x")
	c.startTraining()
}

// TestJurorsVoteOnce checks that a juror can vote once: as a member or while it waits, in later
// epochs and after a return. A new Join ends its part in the jury.
func TestJurorsVoteOnce(t *testing.T) {
	for _, test := range []struct {
		name string
		goes func(*court, ClientID)
		may  bool
	}{
		{"stays", func(*court, ClientID) {}, true},
		{"in RoundWitness", func(c *court, _ ClientID) { c.witnessAll(); c.until(RoundWitness) }, true},
		{"in Cooldown", func(c *court, _ ClientID) { c.cooldown() }, true},
		{"between epochs", func(c *court, _ ClientID) { c.cooldown(); c.finishEpoch("x") }, true},
		{"in Warmup", func(c *court, _ ClientID) { c.toWarmup() }, true},
		{"in the next epoch", func(c *court, _ ClientID) { c.nextEpoch() }, true},
		{"returns", func(c *court, id ClientID) {
			c.mustID(id, Withdraw{Client: id})
			c.round()
			c.mustID(id, Return{})
		}, true},
		{"leaves", func(c *court, id ClientID) { c.mustID(id, Withdraw{Client: id}) }, false},
		{"joins again", func(c *court, id ClientID) { c.mustID(id, Join{}) }, false},
		{"joins again and returns", func(c *court, id ClientID) {
			c.mustID(id, Join{})
			c.round()
			c.mustID(id, Return{})
		}, true},
		{"joins again while it waits", func(c *court, id ClientID) {
			c.cooldown()
			c.finishEpoch("x")
			c.Pending[indexOf(c.Pending, id)].HoldsModel = true
			c.mustID(id, Join{Epoch: c.Progress.Epoch, Commitment: [32]byte{1}})
		}, false},
		{"leaves while it waits", func(c *court, id ClientID) {
			c.cooldown()
			c.finishEpoch("x")
			c.mustID(id, Withdraw{Client: id})
			c.mustID(id, Join{Epoch: c.Progress.Epoch})
		}, false},
	} {
		for _, voted := range []bool{false, true} {
			t.Run(test.name, func(t *testing.T) {
				c := newCourt(t, 12)
				c.tried(FaultResult)
				juror, vote := c.jury()[0], Vote{Step: c.step, Client: c.accused, Guilty: true}
				if voted {
					c.mustID(juror, vote)
				}
				test.goes(c, juror)
				c.check()
				switch {
				case !test.may:
					c.refusedTo(ErrNotElected, juror, vote)
				case voted:
					c.refusedTo(ErrDuplicate, juror, vote)
				default:
					c.mustID(juror, vote)
				}
				c.check()
				if trial := c.trial(); trial.Jurors != 10 || trial.Guilty > 1 {
					t.Errorf("trial %+v", trial)
				}
			})
		}
	}
}

// TestUndecided checks that a trial without a verdict lasts six rounds or a minute, whichever is
// longer, even if a party leaves. It then counts as a complaint of the accuser. No other member is
// affected, not even the jurors that did not vote.
func TestUndecided(t *testing.T) {
	none := func(*court) {}
	for _, test := range []struct {
		name       string
		alter      func(*court)
		rounds     uint32 // duration of the trial
		start      uint64 // elapsed time before the accusation
		complaints int
	}{
		{"slow rounds", none, TrialRounds, TrialTime, 1},
		{"quick rounds", none, 29, 0, 1}, // rounds of two seconds
		{"an accused that left", func(c *court) { c.mustID(c.accused, Withdraw{Client: c.accused}) }, TrialRounds, TrialTime, 1},
		{"an accuser that left", func(c *court) { c.mustID(c.accuser, Withdraw{Client: c.accuser}) }, TrialRounds, TrialTime, 1},
		{"an accuser with many", func(c *court) { c.client(c.accuser).Complaints = math.MaxUint8 }, TrialRounds, TrialTime, math.MaxUint8},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newCourt(t, 12)
			c.Config.RoundsPerEpoch = 100
			c.accuse(FaultResult)
			test.alter(c)
			c.trial().SinceTime -= test.start
			for range test.rounds {
				c.round()
				c.check()
				if c.trial() == nil {
					t.Fatalf("over in step %d, began in %d", c.Progress.Step, c.step+1)
				}
			}
			if c.Progress.Step == c.step+2 {
				t.Fatal("no round took place")
			}
			c.vote(true, 5)
			c.vote(false, 5)
			c.round()
			c.wantNoTrace()
			if c.complaints() != test.complaints {
				t.Errorf("%d complaints", c.complaints())
			}
			for _, client := range c.Epoch.Clients {
				if client.State != Healthy || client.Lateness != OnTime || client.ID != c.accuser && client.Complaints > 0 {
					t.Errorf("the trial affected %s", nameOf(client.ID))
				}
			}
		})
	}
}

// TestLongTrials checks the length of a trial without a verdict in a run with shares by speed.
func TestLongTrials(t *testing.T) {
	for percent, rounds := range map[uint8]uint32{0: TrialRounds, 1: 80, 25: 80, 26: 76, 40: 50, 100: 20} {
		c := newCourt(t, 12)
		c.Config.RoundsPerEpoch = 100
		c.accuse(FaultSilent)
		c.Config.SharesBySpeed, c.Config.VerificationPercent = true, percent
		c.trial().SinceTime -= TrialTime
		for range rounds {
			c.round()
			if c.trial() == nil {
				t.Fatalf("%d %% audits: over in step %d, began in %d", percent, c.Progress.Step, c.step+1)
			}
		}
		c.round()
		c.wantNoTrace()
		if c.complaints() != 1 {
			t.Errorf("%d %% audits: %d complaints", percent, c.complaints())
		}
	}
}

// TestTrialsEndWithBadRoundsToo checks that a round without a quorum counts toward the length of a
// trial.
func TestTrialsEndWithBadRoundsToo(t *testing.T) {
	c := newCourt(t, 12)
	c.accuse(FaultSilent)
	c.trial().SinceTime -= TrialTime
	c.rounds(TrialRounds)
	c.until(Cooldown) // no witness sends a proof
	c.wantNoTrace()
}

// TestComplaintsAreOfAnEpoch checks that complaints end with the epoch.
func TestComplaintsAreOfAnEpoch(t *testing.T) {
	c := newCourt(t, 12)
	c.tried(FaultSilent)
	c.vote(false, c.needed())
	again := Accuse{Step: c.step + 1, Client: c.accused, Fault: FaultResult}
	if c.complaints() != 1 || c.MayAccuse(c.accuser, again) != nil {
		t.Fatalf("%d complaints, %v", c.complaints(), c.MayAccuse(c.accuser, again))
	}
	c.client(c.accuser).Complaints = MaxComplaints
	c.refusedTo(ErrNotElected, c.accuser, again)
	c.cooldown()
	c.refusedTo(ErrNotElected, c.accuser, again)
	c.finishEpoch("x")
	c.startTraining()
	if c.complaints() != 0 {
		t.Errorf("%d complaints in the next epoch", c.complaints())
	}
	c.mustID(c.accuser, again)
	c.check()
}

// TestTrialsGoOn checks that trials continue through Cooldown and between epochs. An accusation in
// the last round of an epoch, or after it, gets a jury from the next epoch.
func TestTrialsGoOn(t *testing.T) {
	for name, begins := range map[string]func(*court){
		"in the last round": func(c *court) { c.accuse(FaultResult); c.cooldown() },
		"in Cooldown":       func(c *court) { c.cooldown(); c.accuse(FaultResult) },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCourt(t, 12)
			begins(c)
			since := *c.trial()
			for range 2 {
				c.check()
				if *c.trial() != since || len(c.jury()) > 0 {
					t.Fatalf("%s: %+v, was %+v", c.RunState, *c.trial(), since)
				}
				if c.RunState == Cooldown {
					c.finishEpoch("x")
					c.until(Warmup)
				}
			}
			c.startTraining()
			c.check()
			if c.trial().Jurors != 10 || len(c.jury()) != 10 {
				t.Fatalf("got %+v; want c.trial().Jurors == 10 and len(c.jury()) == 10", c.trial())
			}
			c.vote(true, 6)
			if _, out := c.ejection(c.accused); !out {
				t.Error("the accused was not ejected")
			}
		})
	}
}

// TestTrialsOfHaltedRuns checks that jurors cannot vote in a paused or finished run, and that
// trials continue after a pause.
func TestTrialsOfHaltedRuns(t *testing.T) {
	c := newCourt(t, 12)
	c.tried(FaultResult)
	jury := c.jury()
	paused := c.fork()
	paused.mustID(host, SetPaused{Paused: true})
	paused.cooldown()
	paused.finishEpoch("x")
	if paused.RunState != Paused {
		t.Fatal(paused.RunState)
	}
	paused.check()
	paused.refusedTo(ErrHalted, jury[0], Vote{Step: c.step, Client: c.accused})
	paused.mustID(host, SetPaused{})
	paused.until(WaitingForMembers)
	paused.vote(true, 6)
	if paused.check(); !paused.isEjected(c.accused) {
		t.Error("the member accused before the pause was not ejected after it")
	}
	c.Config.TotalSteps = c.Progress.Step
	c.round()
	c.finishEpoch("x")
	if c.RunState != Finished || c.trial() == nil {
		t.Fatalf("%s\n%s", c.RunState, c.String())
	}
	c.check()
	c.refusedTo(ErrHalted, jury[0], Vote{Step: c.step, Client: c.accused})
}

// TestConvictionThatEndsTheEpoch checks that a conviction that leaves too few members starts no
// round and uses no draw.
func TestConvictionThatEndsTheEpoch(t *testing.T) {
	c := newCourt(t, 12)
	c.tried(FaultResult)
	c.Config.MinClients, c.Config.InitMinClients = 12, 12
	c.DrawCommitment = testLinks[0]
	c.vote(true, 6)
	c.check()
	seeds := c.SeedChain
	c.witnessAll()
	for c.RunState != Cooldown {
		c.now += second
		c.Tick(c.now, c.testDraw(c.now))
	}
	if c.HealthyCount() != 11 || c.DrawCommitment != testLinks[0] || c.SeedChain != seeds {
		t.Errorf("%d healthy, commitment %x\n%s", c.HealthyCount(), c.DrawCommitment, c.String())
	}
}

// TestHowLongCheatsStayOut checks that ejection_epochs applies to cheats, but not to ejections by
// an authority.
func TestHowLongCheatsStayOut(t *testing.T) {
	for _, epochs := range []uint16{0, 1, 65535} {
		c := newCourt(t, 12)
		c.Config.EjectionEpochs = epochs
		c.tried(FaultResult)
		c.vote(true, 6)
		c.mustID(c.accuser, Equivocation{Client: member(4), Step: c.Progress.Step})
		c.mustID(host, Eject{Client: c.accuser})
		c.check()
		for id, want := range map[ClientID]uint32{c.accused: 1 + uint32(epochs), member(4): 1 + uint32(epochs), c.accuser: 2} {
			if got, _ := c.ejection(id); got.Until != c.Progress.Epoch+want {
				t.Errorf("%d epochs: out until %d, want %d", epochs, got.Until, c.Progress.Epoch+want)
			}
		}
	}
}

// TestClockSetBack checks that a clock that is set back does not extend a trial.
func TestClockSetBack(t *testing.T) {
	c := newCourt(t, 12)
	c.accuse(FaultResult)
	c.StateStart -= 2 * second
	c.Epoch.StartTime, c.trial().SinceTime = 0, c.StateStart
	back := c.StateStart - 1
	if at, ok := c.Due(back); !ok || at != back {
		t.Errorf("due at %d, %t", at, ok)
	}
	if !c.Tick(back, testDraw(1)) || c.trial().SinceTime != back {
		t.Errorf("since %d, want %d", c.trial().SinceTime, back)
	}
	c.check()
	c.trial().SinceTime++ // only the trial is ahead of the clock
	if at, ok := c.Due(back); !ok || at != back || !c.isAhead(back) {
		t.Errorf("due at %d, %t", at, ok)
	}
}

// TestRunContinuesWithoutAuditsAndVotes checks that a run continues unchanged if no member audits,
// votes or sends openings.
func TestRunContinuesWithoutAuditsAndVotes(t *testing.T) {
	c := newCourt(t, 12)
	c.accuse(FaultSilent)
	before := slices.Clone(c.Epoch.Clients)
	c.rounds(35)
	for i, client := range c.Epoch.Clients {
		if client.Lateness != OnTime || client.State != Healthy || client.ID != before[i].ID {
			t.Errorf("got %+v; want client.Lateness == OnTime and client.State == Healthy and client.ID == before[i].ID", client)
		}
	}
}
