package programtest

import (
	"slices"

	"github.com/psyche-go/psyche/coordinator"
)

// court goes on from one round with many sets of trials at any stage, whose parties and jurors are
// there, late, gone, back or waiting again, to that round's end and the next one.
func court(r *pair, seed uint64) error {
	g := newGenerator(seed, 3+int(seed%9))
	config := crowdConfig
	config.InitMinClients, config.MinClients, config.RoundsPerEpoch = uint16(len(g.ids)), uint16(1+g.IntN(3)), 30
	config.VerificationPercent, config.EjectionEpochs = oneOf[uint8](g, 40, 60, 80), oneOf[uint16](g, 0, 1, 3)
	config.WitnessNodes = oneOf[uint16](g, 0, 0, 1)
	genesis := coordinator.Genesis{RunID: "court", Host: clientID(0), Config: config, Model: crowdModel}
	if code, err := r.genesis(genesis); code != 0 || err != nil {
		return err
	}
	l := trialRun{lateRun{generator: g, r: r}}
	for _, id := range g.ids {
		l.send(id, coordinator.Join{})
	}
	for l.err == nil && r.s.RunState != coordinator.RoundTrain {
		l.lateRun.step()
	}
	for range 8 {
		if r.s.RunState == coordinator.RoundTrain {
			l.judged()
			l.witnessAll()
		}
		l.pass(60 * second)
		l.pass(60 * second)
	}
	if l.err != nil || r.s.RunState != coordinator.RoundTrain {
		return l.err
	}
	begun := r.s.Clone()
	for range 25 {
		l.tried(begun.Clone())
	}
	return l.err
}

// judged loads a state in which all verifiers have judged.
func (l *trialRun) judged() {
	s := l.r.s.Clone()
	for i := range s.Epoch.Rounds {
		judge(&s.Epoch.Rounds[i], s.Config)
	}
	if l.err == nil {
		l.err = l.r.load(s)
	}
}

// tried leads a state with trials to the end of its round.
func (l *trialRun) tried(s coordinator.State) {
	l.fillAudits(&s)
	l.fillTrials(&s, 1+l.IntN(coordinator.MaxTrials))
	strange := l.rarely(4) // somebody is accused beside trials of others
	for i := range s.Epoch.Trials {
		t := &s.Epoch.Trials[i]
		t.Guilty, t.Innocent = 0, 0
		t.Jury = slices.DeleteFunc(t.Jury, func(id coordinator.ClientID) bool { return !isHealthy(&s, id) })
		if strange {
			t.Accused, t.Accuser = clientID(800_000+2*i), clientID(800_001+2*i)
		}
	}
	for i := range s.Epoch.Clients {
		c := &s.Epoch.Clients[i]
		c.Lateness = oneOf(l.generator, coordinator.OnTime, coordinator.OnTime, coordinator.FoundLate, coordinator.Late)
		c.Returns, c.Unopened, c.Unrevealed = oneOf[uint8](l.generator, 0, 0, 1, coordinator.MaxReturns), l.rarely(4), l.rarely(4)
	}
	for i := range s.Epoch.Trials {
		if l.rarely(3) {
			l.takeAway(&s, oneOf(l.generator, s.Epoch.Trials[i].Accused, s.Epoch.Trials[i].Accuser))
		}
	}
	if l.err != nil || s.Check() != nil {
		l.r.seen["court: cannot be"]++
		return
	}
	l.r.seen["court"]++
	if l.err = l.r.load(s); l.err != nil {
		return
	}
	for _, id := range l.shuffled()[:2] {
		l.audit(id)
	}
	for _, audit := range l.r.s.Audits(l.ids[0]) {
		l.send(l.ids[0], coordinator.Accuse{Step: audit.Step, Client: audit.Trainer, Fault: coordinator.FaultResult})
		l.send(l.ids[0], coordinator.Accuse{Step: audit.Step, Client: l.id(), Fault: coordinator.FaultPrints})
	}
	l.answer()
	l.witnessSome()
	l.pass(60 * second)
	l.pass(60 * second)
	if l.r.s.RunState == coordinator.RoundTrain {
		l.answer()
	}
}

// takeAway lets a client be gone: it leaves with the round, or has left, may wait again, and may have
// been ejected already.
func (l *trialRun) takeAway(s *coordinator.State, id coordinator.ClientID) {
	i := slices.IndexFunc(s.Epoch.Clients, func(c coordinator.Client) bool { return c.ID == id })
	if i < 0 {
		return
	}
	s.Epoch.Clients[i].State = oneOf(l.generator, coordinator.Withdrawn, coordinator.Dropped)
	if l.rarely(3) {
		return
	}
	if l.rarely(3) {
		s.Authority.Ejections = append(s.Authority.Ejections, coordinator.Ejection{Client: id, Until: s.Progress.Epoch + 1})
	} else if l.rarely(2) {
		s.Pending = append(s.Pending, coordinator.Client{ID: id, ProbationUntil: 1})
	}
	s.Epoch.Exited = append(s.Epoch.Exited, s.Epoch.Clients[i])
	s.Epoch.Clients = slices.Delete(s.Epoch.Clients, i, i+1)
}

// witnessSome lets a quorum prove what is there of a round, most results of it.
func (l *trialRun) witnessSome() {
	s := &l.r.s
	round := s.CurrentRound()
	witnesses := round.ElectedWitnesses(s.Config)
	l.Shuffle(len(witnesses), func(i, j int) { witnesses[i], witnesses[j] = witnesses[j], witnesses[i] })
	for i, member := range witnesses {
		if i >= int(round.WitnessesNeeded) && l.rarely(2) {
			continue
		}
		a := coordinator.WitnessRound{Step: round.Step}
		for _, id := range round.Members {
			if !l.rarely(3) {
				a.Participants.Add(round.Seed, id[:])
			}
		}
		l.send(round.Members[member], a)
	}
}
