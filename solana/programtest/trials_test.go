package programtest

import (
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/coordinator"
)

// trials lets members audit, accuse, open and vote, in runs of few and of some more: mostly as they
// should, so that trials begin and end in every way, and now and then too late, twice, or about
// somebody else.
func trials(r *pair, seed uint64) error {
	g := newGenerator(seed, []int{4, 5, 3, 7, 12, 2, 9, 6, 4, 5, 3, 8, 40, 4, 6, 20}[seed%16])
	config := crowdConfig
	config.InitMinClients, config.MinClients = uint16(len(g.ids)), uint16(1+g.IntN(2))
	config.VerificationPercent = oneOf[uint8](g, 1, 20, 40, 60, 75, 100)
	config.EjectionEpochs = oneOf[uint16](g, 0, 1, 1, 2, 1<<16-1)
	config.RoundsPerEpoch = uint32(3 + g.IntN(14))
	config.GlobalBatchSizeStart = oneOf[uint32](g, 1, 2, 3, 200)
	genesis := coordinator.Genesis{RunID: "trials", Host: clientID(0), Config: config, Model: crowdModel}
	if code, err := r.genesis(genesis); code != 0 || err != nil {
		return err
	}
	l := trialRun{lateRun{generator: g, r: r}}
	for _, id := range g.ids {
		l.send(id, coordinator.Join{})
	}
	for range 100 {
		if l.step(); l.err != nil || r.s.RunState == coordinator.Finished {
			break
		}
	}
	return l.err
}

type trialRun struct{ lateRun }

func (l *trialRun) step() {
	s := &l.r.s
	if s.RunState != coordinator.RoundTrain && s.RunState != coordinator.RoundWitness {
		if s.RunState == coordinator.Cooldown {
			l.answer()
		}
		if s.RunState == coordinator.WaitingForMembers && l.rarely(3) { // an ejected one may never come back
			for i := range 2 {
				l.ids = append(l.ids, clientID(1_000_000+len(l.ids)*10+i))
			}
		}
		l.lateRun.step()
		return
	}
	if l.rarely(20) {
		l.age()
	}
	if l.rarely(20) {
		l.send(l.id(), coordinator.Withdraw{Client: l.id()})
	}
	for _, id := range l.shuffled() {
		l.audit(id)
		if _, seated := s.Member(id); !seated && l.rarely(2) {
			l.send(id, coordinator.Return{Epoch: s.Progress.Epoch})
		}
	}
	l.answer()
	if l.rarely(5) {
		l.witness()
	} else {
		l.witnessAll()
	}
	before := slices.Clone(s.Epoch.Trials)
	l.pass(oneOf[uint64](l.generator, 0, 1, second, 5*second, 60*second))
	l.noteEnded(before)
}

// noteEnded counts the trials that a tick ended.
func (l *trialRun) noteEnded(before []coordinator.Trial) {
	for i := range before {
		t := &before[i]
		if l.r.s.Trial(t.Accused) == nil {
			l.r.seen[fmt.Sprintf("trial over: jury %t opened %t step %d", len(t.Jury) > 0, t.Opening != [32]byte{}, l.r.s.Progress.Step-t.Since)]++
		}
	}
}

// witnessAll proves all of a round.
func (l *trialRun) witnessAll() {
	round := l.r.s.CurrentRound()
	a := coordinator.WitnessRound{Step: round.Step}
	for _, id := range round.Members {
		a.Participants.Add(round.Seed, id[:])
	}
	for _, member := range round.ElectedWitnesses(l.r.s.Config) {
		l.send(round.Members[member], a)
	}
}

// audit does what a member that trains nothing should, mostly, and lets it accuse.
func (l *trialRun) audit(id coordinator.ClientID) {
	s := &l.r.s
	for _, audit := range s.Audits(id) {
		if !audit.Sealed && !l.rarely(6) {
			l.send(id, coordinator.SealVerdict{Step: audit.Step})
		}
		if !audit.Judged && !l.rarely(6) {
			l.send(id, coordinator.Verdict{Step: audit.Step, Passed: l.rarely(2)})
		}
	}
	if l.rarely(9) {
		l.send(id, l.audited(s))
	}
	for step := s.Progress.Step - min(s.Progress.Step, 3); step <= s.Progress.Step; step++ {
		audit, ok := s.AuditOf(step, id)
		if verifiers := s.Auditors(step, id); len(verifiers) > 0 && l.rarely(4) {
			l.send(id, coordinator.Accuse{Step: step, Client: oneOf(l.generator, verifiers...), Fault: oneOf[coordinator.Fault](l.generator, 3, 3, 4, 4, 1)})
		}
		if ok && l.rarely(4) && !audit.Judged { // perhaps too late
			l.send(id, coordinator.SealVerdict{Step: step})
			l.send(id, coordinator.Verdict{Step: step})
		}
		if !ok || !l.rarely(4) {
			continue
		}
		accuse := coordinator.Accuse{Step: step, Client: audit.Trainer, Fault: oneOf[coordinator.Fault](l.generator, 1, 1, 1, 2, 2, 3, 3, 3, 4, 4, 0, 5)}
		if fellows := s.Auditors(step, audit.Trainer); accuse.Fault >= coordinator.FaultPrints || l.rarely(20) {
			if len(fellows) > 1 {
				fellows = slices.DeleteFunc(fellows, func(fellow coordinator.ClientID) bool { return fellow == id && !l.rarely(9) })
			}
			accuse.Client = oneOf(l.generator, fellows...)
		}
		l.send(id, accuse)
	}
}

// answer lets some of the accused open, and juries vote, of one mind or not.
func (l *trialRun) answer() {
	s := &l.r.s
	for _, t := range s.Clone().Epoch.Trials {
		switch l.IntN(4) {
		case 0:
			l.send(t.Accused, coordinator.Open{Step: t.Step, Blob: clientID(1)})
		case 1:
			l.send(oneOf(l.generator, t.Accused, l.id()), coordinator.Open{Step: l.around(t.Step), Blob: [32]byte{byte(l.IntN(2))}})
		}
		silent, split := oneOf(l.generator, 1, 2, 3, 100), oneOf(l.generator, 2, 3, 100)
		guilty := l.rarely(2)
		for _, juror := range t.Jury {
			if !l.rarely(silent) && (isHealthy(s, juror) || l.rarely(9)) {
				l.send(juror, coordinator.Vote{Step: t.Step, Client: t.Accused, Guilty: guilty != l.rarely(split)})
			}
		}
		if l.rarely(2) {
			l.send(l.id(), coordinator.Vote{Step: l.around(t.Step), Client: oneOf(l.generator, t.Accused, t.Accuser, l.id())})
		}
	}
}

// audited draws an action of audits and trials of which anything may be wrong.
func (g *generator) audited(s *coordinator.State) coordinator.Action {
	step, client := g.around(s.Progress.Step), g.id()
	if len(s.Epoch.Trials) > 0 && !g.rarely(4) {
		t := oneOf(g, s.Epoch.Trials...)
		step, client = t.Step, oneOf(g, t.Accused, t.Accused, t.Accuser)
	}
	switch g.IntN(5) {
	case 0:
		return coordinator.SealVerdict{Step: g.around(s.Progress.Step)}
	case 1:
		return coordinator.Verdict{Step: g.around(s.Progress.Step), Passed: g.rarely(2)}
	case 2:
		return coordinator.Accuse{Step: g.around(s.Progress.Step), Client: g.id(), Fault: coordinator.Fault(g.IntN(6))}
	case 3:
		return coordinator.Open{Step: step, Blob: [32]byte{byte(g.IntN(3))}}
	default:
		return coordinator.Vote{Step: step, Client: client, Guilty: g.rarely(2)}
	}
}

// ofAudits is what an honest member sends of audits and trials; nil for nothing.
func (g *generator) ofAudits(s *coordinator.State, id coordinator.ClientID) coordinator.Action {
	for _, audit := range s.Audits(id) {
		switch {
		case !audit.Sealed:
			return coordinator.SealVerdict{Step: audit.Step}
		case !audit.Judged:
			return coordinator.Verdict{Step: audit.Step}
		}
		if a := (coordinator.Accuse{Step: audit.Step, Client: audit.Trainer, Fault: coordinator.FaultResult}); g.rarely(3) && s.MayAccuse(id, a) == nil {
			return a
		}
	}
	for i := range s.Epoch.Trials {
		t := &s.Epoch.Trials[i]
		switch {
		case t.Accused == id && t.Opening == [32]byte{} && len(t.Jury) > 0:
			return coordinator.Open{Step: t.Step, Blob: clientID(2)}
		case t.IsJuror(id) && !t.HasVoted(id) && t.MayVote(s.Progress.Step):
			return coordinator.Vote{Step: t.Step, Client: t.Accused, Guilty: g.rarely(2)}
		}
	}
	return nil
}

// fillAudits lets half of those who could have sealed and judged.
func (g *generator) fillAudits(s *coordinator.State) {
	for i := range s.Epoch.Rounds {
		r := &s.Epoch.Rounds[i]
		if r.Height == 0 {
			continue
		}
		for _, member := range assign.Verifiers(r.BatchSeed, len(r.Members), int(s.Config.VerificationPercent)) {
			if bit := byte(1) << (member % 8); g.rarely(2) {
				r.Sealed[member/8] |= bit
				if g.rarely(2) {
					r.Judged[member/8] |= bit
				}
			}
		}
	}
}

// fillTrials makes trials of members and others, at any stage.
func (g *generator) fillTrials(s *coordinator.State, count int) {
	s.Epoch.Trials = nil
	n := len(s.Epoch.Rounds)
	if n == 0 || s.Epoch.Rounds[n-1].Height == 0 {
		return
	}
	newest, first := s.Epoch.Rounds[n-1].Step, s.Epoch.StartStep+1
	parties := slices.Clone(g.ids)
	for i := len(parties); i < 2*coordinator.MaxTrials; i++ {
		parties = append(parties, clientID(700_000+i))
	}
	g.Shuffle(len(parties), func(i, j int) { parties[i], parties[j] = parties[j], parties[i] })
	for i := range count {
		t := coordinator.Trial{Accused: parties[2*i], Accuser: parties[2*i+1], Fault: coordinator.Fault(1 + g.IntN(3))}
		t.Since = max(first, newest-min(newest, oneOf[uint32](g, 0, 1, 2, 2, 2, 3, 4, 5, 6, 6)))
		t.Step = max(first, t.Since-uint32(g.IntN(coordinator.AccuseRounds+1)))
		if t.Since < newest {
			g.fillJury(s, &t)
		}
		s.Epoch.Trials = append(s.Epoch.Trials, t)
	}
}

// fillJury draws a jury of members and others, some of whom have voted, too few to decide.
func (g *generator) fillJury(s *coordinator.State, t *coordinator.Trial) {
	round := s.CurrentRound()
	if round == nil {
		return
	}
	jury := slices.Clone(round.Members)
	for i := range g.IntN(coordinator.MaxJury + 1) {
		jury = append(jury, clientID(700_000+i))
	}
	jury = slices.DeleteFunc(jury, func(id coordinator.ClientID) bool { return id == t.Accused || id == t.Accuser })
	g.Shuffle(len(jury), func(i, j int) { jury[i], jury[j] = jury[j], jury[i] })
	t.Jury = jury[:min(len(jury), coordinator.MaxJury)]
	if g.rarely(2) {
		t.Opening = clientID(3)
	}
	for juror, most := 0, len(t.Jury)/2; juror < most; juror++ {
		switch g.IntN(3) {
		case 0:
			t.Guilty |= 1 << juror
		case 1:
			t.Innocent |= 1 << juror
		}
	}
}
