package programtest

import (
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

// court continues from one round with many sets of trials in all stages. Their parties and jurors
// are present, late, gone, back or pending again. It plays each to the end of that round and the
// next.
func court(r *pair, seed uint64) error {
	g := newGenerator(seed, 3+int(seed%9))
	config := crowdConfig
	config.InitMinClients, config.MinClients, config.RoundsPerEpoch = uint16(len(g.ids)), uint16(1+g.IntN(3)), 30
	config.VerificationPercent, config.EjectionEpochs = oneOf[uint8](g, 0, 40, 80), oneOf[uint16](g, 0, 1, 3)
	config.WitnessNodes, config.ProbationSteps = oneOf[uint16](g, 0, 0, 1), oneOf[uint32](g, 0, 2, 40)
	config.SharesBySpeed = seed%3 == 0
	genesis := coordinator.Genesis{RunID: "court", Host: clientID(0), Config: config, Model: crowdModel}
	if code, err := r.genesis(genesis); code != 0 || err != nil {
		return err
	}
	l := trialRun{lateRun{generator: g, r: r}}
	for _, id := range g.ids {
		l.send(id, coordinator.Join{Commitment: linkAt(30)})
	}
	for l.err == nil && r.s.RunState != coordinator.RoundTrain {
		l.lateRun.step()
	}
	for range 8 {
		if r.s.RunState == coordinator.RoundTrain {
			l.witnessAll()
		}
		l.pass(60 * second)
		l.pass(60 * second)
	}
	if l.err != nil || r.s.RunState != coordinator.RoundTrain {
		return l.err
	}
	begun, now := r.s.Clone(), l.now
	for range 25 {
		l.now = now
		l.tried(begun.Clone())
	}
	return l.err
}

// tried plays a state with trials to the end of its round.
func (l *trialRun) tried(s coordinator.State) {
	for i := range s.Epoch.Clients {
		c := &s.Epoch.Clients[i]
		c.Lateness = oneOf(l.generator, coordinator.OnTime, coordinator.OnTime, coordinator.FoundLate, coordinator.Late)
		c.Returns, c.Complaints = oneOf[uint8](l.generator, 0, 0, 1, 2, coordinator.MaxReturns), l.complaints()
		c.ProbationUntil = oneOf(l.generator, 1, 1, s.Progress.Step, s.Progress.Step+1, s.Progress.Step+9)
	}
	for _, id := range l.shuffled() {
		if l.rarely(5) {
			l.takeAway(&s, id)
		}
	}
	l.fillTrials(&s, l.IntN(coordinator.MaxTrials+1))
	if l.err != nil || s.Check() != nil {
		l.r.seen["court: cannot be"]++
		return
	}
	l.r.seen["court"]++
	if l.err = l.r.load(s); l.err != nil {
		return
	}
	l.accuseMany(6)
	l.answer()
	for _, id := range l.shuffled() {
		l.send(id, coordinator.Return{Epoch: s.Progress.Epoch})
	}
	l.witnessSome()
	before := slices.Clone(l.r.s.Trials)
	l.pass(oneOf[uint64](l.generator, second, 60*second, 60*second))
	l.pass(oneOf[uint64](l.generator, 5*second, 60*second))
	l.noteEnded(before)
	l.answer()
	l.accuseMany(3)
}

// takeAway removes a client: it leaves with the round, or has already left. It may be pending
// again, or already ejected.
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
		s.Pending = append(s.Pending, coordinator.Client{ID: id, ProbationUntil: 1, Complaints: l.complaints()})
	}
	s.Epoch.Exited = append(s.Epoch.Exited, s.Epoch.Clients[i])
	s.Epoch.Clients = slices.Delete(s.Epoch.Clients, i, i+1)
}

// witnessSome makes a quorum prove most results of a round.
func (l *trialRun) witnessSome() {
	s := &l.r.s
	round := s.CurrentRound()
	witnesses := round.ElectedWitnesses(s.Config)
	l.Shuffle(len(witnesses), func(i, j int) { witnesses[i], witnesses[j] = witnesses[j], witnesses[i] })
	for i, member := range witnesses {
		if i >= int(round.WitnessesNeeded) && l.rarely(2) {
			continue
		}
		a := coordinator.WitnessRound{Step: round.Step, Reveal: l.reveal(s, round.Members[member])}
		for _, id := range round.Members {
			if !l.rarely(3) {
				a.Participants.Add(round.Seed, id[:])
			}
		}
		l.send(round.Members[member], a)
	}
}
