package coordinator

import (
	"slices"
	"testing"

	"github.com/psyche-go/psyche/assign"
)

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
