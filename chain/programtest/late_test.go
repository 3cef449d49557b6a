package programtest

import (
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

// lateness makes witnesses find members without results, round after round: by some witnesses or by
// a quorum, of few members or of more than may be late, and in any order. Members leave, or have
// records that a short run does not give them.
func lateness(r *pair, seed uint64) error { return late(r, seed, crowdConfig) }

// offers does the same in runs whose members offer speeds.
func offers(r *pair, seed uint64) error {
	config := crowdConfig
	config.SharesBySpeed = true
	config.GlobalBatchSizeStart = []uint32{200, 3, 9, 40, 12}[seed%5]
	return late(r, seed, config)
}

func late(r *pair, seed uint64, config coordinator.Config) error {
	g := newGenerator(seed, []int{9, 2, 7, 3, 12, 2, 4}[seed%7])
	config.InitMinClients, config.MinClients, config.VerificationPercent = uint16(len(g.ids)), 1, uint8(g.IntN(2)*20)
	config.WitnessNodes = oneOf[uint16](g, 0, 0, 1)
	config.RoundsPerEpoch = oneOf[uint32](g, 6, 6, coordinator.TermRounds, 1000)
	genesis := coordinator.Genesis{RunID: "late", Host: clientID(0), Config: config, Model: crowdModel}
	if code, err := r.genesis(genesis); code != 0 || err != nil {
		return err
	}
	l := lateRun{generator: g, r: r}
	for _, id := range g.ids {
		l.send(id, coordinator.Join{})
	}
	for range 60 {
		l.step()
	}
	return l.err
}

type lateRun struct {
	*generator
	r   *pair
	err error
}

// send sends an action that may be refused.
func (l *lateRun) send(from coordinator.ClientID, a coordinator.Action) {
	l.nonce++
	if l.err == nil {
		_, l.err = l.r.apply(from, l.nonce, encode(a))
	}
}

func (l *lateRun) pass(d uint64) {
	l.now += d
	if l.err == nil {
		_, l.err = l.r.tick(l.now, l.Uint64())
	}
}

func (l *lateRun) step() {
	s := &l.r.s
	if l.rarely(4) {
		l.age()
	}
	if l.rarely(15) {
		id := l.id()
		l.send(oneOf(l.generator, id, s.Host), coordinator.Withdraw{Client: id})
	}
	switch s.RunState {
	case coordinator.WaitingForMembers:
		for _, id := range l.ids {
			l.send(id, coordinator.Join{Epoch: s.Progress.Epoch, Commitment: l.commitment()})
		}
	case coordinator.Warmup:
		for _, id := range l.ids {
			l.send(id, readyOf(s, id, l.commitment()))
		}
	case coordinator.RoundTrain, coordinator.RoundWitness:
		l.accuse()
		l.offer()
		l.witness()
		for _, id := range l.ids {
			if !isHealthy(s, id) && l.rarely(3) {
				l.send(id, coordinator.Return{Epoch: s.Progress.Epoch})
			}
		}
	case coordinator.Cooldown:
		l.accuse()
		reports := 1 + l.IntN(len(l.ids))
		for _, id := range l.shuffled()[:reports] {
			l.send(id, coordinator.ReportCheckpoint{Step: s.Progress.Step, Digest: [32]byte{byte(1 + l.IntN(20)/19)}})
		}
	}
	l.pass(oneOf[uint64](l.generator, 0, 1, second, 5*second, 60*second))
}

// age gives members records: findings of this epoch, and a few members that left.
func (l *lateRun) age() {
	s := l.r.s.Clone()
	for _, clients := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited} {
		for i := range clients {
			clients[i].Returns = oneOf[uint8](l.generator, 0, 0, 1, coordinator.MaxReturns)
			clients[i].Lateness = oneOf(l.generator, coordinator.OnTime, coordinator.OnTime, coordinator.FoundLate, coordinator.Late, coordinator.Slow)
		}
	}
	if s.Config.SharesBySpeed {
		l.fillLevels(&s)
	}
	if (s.RunState == coordinator.RoundTrain || s.RunState == coordinator.RoundWitness) && l.rarely(2) {
		toEndOfTerm(&s)
	}
	for i := range s.Epoch.Clients {
		if c := &s.Epoch.Clients[i]; l.rarely(6) {
			c.State, c.Active = oneOf(l.generator, coordinator.Healthy, coordinator.Dropped), l.rarely(2)
		}
	}
	if len(s.Epoch.Clients) > 0 && l.rarely(2) {
		s.Epoch.Exited = nil
		for i := range min(l.IntN(3*len(l.ids)), coordinator.MaxClients-len(s.Epoch.Clients)) {
			c := l.stranger(&s, i, coordinator.Withdrawn)
			c.Lateness = oneOf(l.generator, coordinator.OnTime, coordinator.Late)
			c.ProbationUntil = 1 + uint32(l.IntN(9))
			s.Epoch.Exited = append(s.Epoch.Exited, c)
		}
	}
	if s.Check() == nil && l.err == nil {
		l.err = l.r.load(s)
	}
}

func (l *lateRun) shuffled() []coordinator.ClientID {
	ids := slices.Clone(l.ids)
	l.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	return ids
}

// offer lets some members offer speeds.
func (l *lateRun) offer() {
	if !l.r.s.Config.SharesBySpeed {
		return
	}
	for _, id := range l.ids {
		if l.rarely(3) {
			l.send(id, coordinator.Offer{Step: l.around(l.r.s.Progress.Step), Level: l.level()})
		}
	}
}

// accuse accuses members that can be accused, in any order, individually or together.
func (l *lateRun) accuse() {
	s := &l.r.s
	round := s.RoundOfStep(s.Progress.Step - 1)
	if round == nil {
		return
	}
	accusable := round.Unhealthy(s.Config) // including members that left
	l.Shuffle(len(accusable), func(i, j int) { accusable[i], accusable[j] = accusable[j], accusable[i] })
	if l.rarely(3) {
		accusable = append(accusable, l.shuffled()...)
	}
	for member, id := range round.Members {
		if round.Excused.Has(member) {
			l.send(l.id(), coordinator.HealthCheck{Step: s.Progress.Step - 1, Clients: []coordinator.ClientID{id}})
		}
	}
	for len(accusable) > 0 && !l.rarely(5) {
		n := 1 + l.IntN(len(accusable))
		l.send(l.id(), coordinator.HealthCheck{Step: s.Progress.Step - 1, Clients: accusable[:n]})
		accusable = accusable[n:]
	}
}

// witness proves the results of a round. Some results are held by no witness, and some only by few.
func (l *lateRun) witness() {
	round := l.r.s.CurrentRound()
	gone, partly, silent := l.IntN(len(l.ids)), l.IntN(len(l.ids)+1), oneOf(l.generator, 3, 100)
	for _, id := range l.shuffled() {
		if l.rarely(silent) {
			continue
		}
		a := coordinator.WitnessRound{Step: round.Step, Reveal: l.reveal(&l.r.s, id)}
		for i, member := range round.Members {
			if i < gone/2 || i%2 == 1 && i < partly && l.rarely(2) {
				continue
			}
			a.Participants.Add(round.Seed, member[:])
		}
		l.send(id, a)
		if l.rarely(8) {
			l.pass(second)
			if s := l.r.s.RunState; s != coordinator.RoundTrain && s != coordinator.RoundWitness {
				return
			}
			round = l.r.s.CurrentRound()
		}
	}
}
