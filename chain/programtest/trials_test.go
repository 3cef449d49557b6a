package programtest

import (
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

// trials makes members accuse each other and vote, in small and larger runs, in many rounds and
// epochs. Trials begin and end in every way, also trials of members that have left.
func trials(r *pair, seed uint64) error {
	g := newGenerator(seed, []int{4, 5, 3, 7, 12, 2, 9, 6, 4, 5, 3, 8, 40, 4, 6, 120}[seed%16])
	config := crowdConfig
	config.InitMinClients, config.MinClients = uint16(min(len(g.ids), 6)), uint16(1+g.IntN(2))
	config.VerificationPercent = oneOf[uint8](g, 0, 20, 40, 60, 100)
	config.EjectionEpochs, config.ProbationSteps = oneOf[uint16](g, 0, 1, 1, 2, 1<<16-1), oneOf[uint32](g, 0, 0, 1, 4)
	config.RoundsPerEpoch = uint32(3 + g.IntN(14))
	config.GlobalBatchSizeStart = oneOf[uint32](g, 1, 2, 3, 200)
	genesis := coordinator.Genesis{RunID: "trials", Host: clientID(0), Config: config, Model: crowdModel}
	if code, err := r.genesis(genesis); code != 0 || err != nil {
		return err
	}
	l := trialRun{lateRun{generator: g, r: r}}
	for _, id := range g.ids {
		l.send(id, coordinator.Join{Commitment: l.commitment()})
	}
	for range 80 {
		if l.step(); l.err != nil || r.s.RunState == coordinator.Finished {
			break
		}
	}
	return l.err
}

type trialRun struct{ lateRun }

func (l *trialRun) step() {
	s := &l.r.s
	l.answer()
	if s.RunState != coordinator.RoundTrain && s.RunState != coordinator.RoundWitness {
		if s.RunState == coordinator.Cooldown {
			l.accuseMany(3)
		}
		if s.RunState == coordinator.WaitingForMembers && l.rarely(3) { // an ejected client may never come back
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
		if _, seated := s.Member(id); !seated && l.rarely(2) {
			l.send(id, coordinator.Return{Epoch: s.Progress.Epoch})
		}
	}
	l.accuseMany(oneOf(l.generator, 1, 2, 2, 12))
	if l.rarely(5) {
		l.witness()
	} else {
		l.witnessAll()
	}
	before := slices.Clone(s.Trials)
	l.pass(oneOf[uint64](l.generator, 0, 1, second, 5*second, 60*second))
	l.noteEnded(before)
}

// noteEnded counts the trials that a tick ended.
func (l *trialRun) noteEnded(before []coordinator.Trial) {
	for i := range before {
		t := &before[i]
		if l.r.s.Trial(t.Accused, t.Step) == nil {
			l.r.seen[fmt.Sprintf("trial over: jury %t step %d", t.Jurors > 0, l.r.s.Progress.Step-t.Since)]++
		}
	}
}

// witnessAll proves all results of a round.
func (l *trialRun) witnessAll() {
	round := l.r.s.CurrentRound()
	a := coordinator.WitnessRound{Step: round.Step}
	for _, id := range round.Members {
		a.Participants.Add(round.Seed, id[:])
	}
	for _, member := range round.ElectedWitnesses(l.r.s.Config) {
		a.Reveal = l.reveal(&l.r.s, round.Members[member])
		l.send(round.Members[member], a)
	}
}

// accuseMany sends up to most accusations by random clients, mostly about steps that are old
// enough.
func (l *trialRun) accuseMany(most int) {
	for range l.IntN(most + 1) {
		l.send(l.id(), l.accusation(&l.r.s))
	}
}

// accusation draws an accusation in which anything may be wrong.
func (g *generator) accusation(s *coordinator.State) coordinator.Accuse {
	a := coordinator.Accuse{Step: 1 + uint32(g.Uint64N(uint64(s.Progress.Step))), Client: g.id(), Fault: oneOf[coordinator.Fault](g, 1, 1, 1, 2, 2, 2, 2, 0, 3)}
	if g.rarely(2) {
		a.Step = g.around(s.Progress.Step - 1)
	}
	if len(s.Trials) > 0 && g.rarely(3) { // a step with an open trial of a different member
		a.Client, a.Step = oneOf(g, s.Trials...).Accused, oneOf(g, a.Step, oneOf(g, s.Trials...).Step)
	}
	if g.rarely(12) {
		a.Client = clientID(900_000) // a client that does not exist
	}
	return a
}

// answer makes juries vote, unanimously or not.
func (l *trialRun) answer() {
	s := &l.r.s
	for _, t := range slices.Clone(s.Trials) {
		silent, split := oneOf(l.generator, 1, 2, 2, 3, 100), oneOf(l.generator, 2, 3, 100)
		guilty := l.rarely(2)
		for _, juror := range jurorsOf(s, t.Slot) {
			if !l.rarely(silent) {
				l.send(juror, coordinator.Vote{Step: t.Step, Client: t.Accused, Guilty: guilty != l.rarely(split)})
			}
		}
		if l.rarely(2) {
			l.send(l.id(), coordinator.Vote{Step: l.around(t.Step), Client: oneOf(l.generator, t.Accused, t.Accuser, l.id())})
		}
	}
}

// jurorsOf returns the jurors of a trial in all lists, including jurors that cannot vote there.
func jurorsOf(s *coordinator.State, slot uint8) (jurors []coordinator.ClientID) {
	for _, clients := range [][]coordinator.Client{s.Epoch.Clients, s.Pending, s.Epoch.Exited, s.Departed} {
		for i := range clients {
			if clients[i].Juror>>slot&1 == 1 {
				jurors = append(jurors, clients[i].ID)
			}
		}
	}
	return jurors
}

// ofTrials draws an accusation or a vote in which anything may be wrong.
func (g *generator) ofTrials(s *coordinator.State) coordinator.Action {
	if len(s.Trials) == 0 || g.rarely(3) {
		return g.accusation(s)
	}
	t := oneOf(g, s.Trials...)
	return coordinator.Vote{Step: g.around(t.Step), Client: oneOf(g, t.Accused, t.Accused, t.Accused, t.Accuser), Guilty: g.rarely(2)}
}

// complaints draws a client's number of complaints.
func (g *generator) complaints() uint8 {
	return oneOf[uint8](g, 0, 0, 1, coordinator.MaxComplaints-1, coordinator.MaxComplaints, 254, 255)
}

// fillChallenges gives rounds values as if witnesses had revealed them.
func (g *generator) fillChallenges(s *coordinator.State) {
	for i := range s.Epoch.Rounds {
		s.Epoch.Rounds[i].Challenge = clientID(g.IntN(1000))
	}
}

// fillTrials adds trials of members and other clients, in any stage, with jurors in all lists of
// clients.
func (g *generator) fillTrials(s *coordinator.State, count int) {
	s.Trials = nil
	places := g.places(s)
	for _, c := range places {
		c.Juror, c.Voted = 0, 0
	}
	step := s.Progress.Step
	if step < 2 {
		return
	}
	accusers := slices.Clone(g.ids)
	for i := len(accusers); i < coordinator.MaxTrials+2; i++ {
		accusers = append(accusers, clientID(700_000+i))
	}
	g.Shuffle(len(accusers), func(i, j int) { accusers[i], accusers[j] = accusers[j], accusers[i] })
	slots, rounds := g.Perm(coordinator.MaxTrials), s.Config.TrialRounds()
	for i := range count {
		t := coordinator.Trial{Slot: uint8(slots[i]), Accused: accusers[(i/2*2+len(accusers)-1-i%2*oneOf(g, 0, 1))%len(accusers)], Accuser: accusers[i], Fault: oneOf(g, coordinator.FaultResult, coordinator.FaultSilent, coordinator.FaultPart+coordinator.Fault(g.IntN(coordinator.MaxParts)))}
		t.Since = max(2, step-min(step, oneOf[uint32](g, 0, 0, 0, 1, 1, 2, 4, rounds-1, rounds, rounds, rounds, rounds+1, 30)))
		t.Step = 1 + uint32(g.Uint64N(uint64(t.Since-1)))
		t.SinceTime = s.StateStart - min(s.StateStart, oneOf[uint64](g, 0, 0, second, 54*second-1, 54*second, 54*second, 59*second, 60*second-1, 60*second, 60*second+1, 100*second))
		if t.Accused == t.Accuser || slices.ContainsFunc(s.Trials, func(u coordinator.Trial) bool { return u.Accused == t.Accused && u.Step == t.Step }) {
			continue
		}
		if t.Since < step {
			g.swear(&t, places)
		}
		s.Trials = append(s.Trials, t)
	}
}

// places returns the records of all clients, in random order.
func (g *generator) places(s *coordinator.State) (places []*coordinator.Client) {
	for _, clients := range [][]coordinator.Client{s.Epoch.Clients, s.Pending, s.Epoch.Exited, s.Departed} {
		for i := range clients {
			places = append(places, &clients[i])
		}
	}
	return places
}

// swear makes some clients jurors. Some of them were removed and some have voted, but too few to
// decide.
func (g *generator) swear(t *coordinator.Trial, places []*coordinator.Client) {
	size := min(coordinator.MaxJury, max(2, oneOf(g, len(places), len(places)+3, 1+g.IntN(12))))
	t.Jurors = uint8(size)
	for i, at := range g.Perm(len(places)) {
		if i >= size {
			break
		}
		c := places[at]
		c.Juror |= 1 << t.Slot
		next := *t
		switch g.IntN(3) {
		case 0:
			next.Guilty++
		case 1:
			next.Innocent++
		}
		if next != *t && !next.Convicts() && !next.Acquits() {
			*t = next
			c.Voted |= 1 << t.Slot
		}
	}
}
