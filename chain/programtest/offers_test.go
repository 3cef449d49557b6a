package programtest

import "github.com/psyche-go/psyche/core/coordinator"

// levelLimits plays rounds whose members have levels near the limits of a byte. In each round, the witnesses
// deny the result of the first member and hold all others.
func levelLimits(r *pair) error {
	c := fourMembers(r, func(config *coordinator.Config) { config.SharesBySpeed = true })
	for _, level := range []uint8{1, 5, 16, 17, 18, 80, 246, 250, 255} {
		c.loseFirst(level, level, 255)
	}
	for below := range uint8(7) {
		c.loseFirst(100, 100-below, 100-below)
	}
	c.loseFirst(100, 60, 255) // it lost an earlier result
	return c.err
}

// loseFirst plays a round with one level for all members. The first member has its own level for later rounds, an
// offer, and no excuses.
func (c *crowd) loseFirst(level, own, offer uint8) {
	if c.err != nil {
		return
	}
	s := c.r.s.Clone()
	for i := range s.Epoch.Clients {
		client := &s.Epoch.Clients[i]
		client.Level, client.Offer, client.Lateness = level, 255, coordinator.OnTime
		s.CurrentRound().Levels[i] = level
	}
	first, _ := s.Member(s.CurrentRound().Members[0])
	first.Level, first.Offer, first.Excuses = own, offer, 0
	if c.err = c.r.load(s); c.err != nil {
		return
	}
	c.attest(c.r.s.CurrentRound().Members[1:])
}

// fourMembers begins a run whose members all train, for up to 100 rounds.
func fourMembers(r *pair, change func(*coordinator.Config)) *crowd {
	config := crowdConfig
	config.VerificationPercent, config.RoundsPerEpoch, config.InitMinClients = 0, 100, 4
	change(&config)
	c := &crowd{r: r, now: 100 * second}
	if _, err := r.genesis(coordinator.Genesis{RunID: "four", Host: clientID(100_000), Config: config, Model: crowdModel}); err != nil {
		c.fail("%w", err)
		return c
	}
	for i := range 4 {
		c.must(clientID(i), coordinator.Join{})
	}
	c.tick(0, coordinator.WaitingForMembers)
	c.tick(4*second, coordinator.Warmup)
	for i := range 4 {
		c.must(clientID(i), coordinator.Ready{})
	}
	c.tick(second, coordinator.RoundTrain)
	return c
}

// attest plays a round whose witnesses hold the results of some members.
func (c *crowd) attest(ids []coordinator.ClientID) {
	round := c.r.s.CurrentRound()
	proof := coordinator.WitnessRound{Step: round.Step}
	for _, id := range ids {
		proof.Participants.Add(round.Seed, id[:])
	}
	for _, id := range round.Members {
		c.must(id, proof)
	}
	c.tick(0, coordinator.RoundWitness)
	c.tick(0, coordinator.RoundTrain)
}
