package programtest

import "github.com/psyche-go/psyche/coordinator"

// endsOfTime lets a run begin at the time 0, which stands for no time, and go on at the last one,
// after which no wait is over.
func endsOfTime(r *pair) error {
	genesis := coordinator.Genesis{RunID: "times", Host: clientID(0), Config: crowdConfig, Model: crowdModel}
	if _, err := r.genesis(genesis); err != nil {
		return err
	}
	for i := range 3 {
		if _, err := r.apply(clientID(i), 1, encode(coordinator.Join{})); err != nil {
			return err
		}
	}
	for _, now := range []uint64{0, 0, 1, 1<<64 - 1, 1<<64 - 1, 1<<64 - 1, 100, 100 + 30*second, 1<<64 - 1, 1<<64 - 1} {
		if _, err := r.tick(now, now); err != nil {
			return err
		}
	}
	return nil
}

// begun returns a run of a few clients in Warmup.
func begun(r *pair, clients int, permissioned bool) *crowd {
	c := &crowd{r: r, now: 100 * second}
	genesis := coordinator.Genesis{RunID: "script", Host: clientID(0), Config: crowdConfig, Model: crowdModel, Permissioned: permissioned}
	if _, err := r.genesis(genesis); err != nil {
		c.fail("%w", err)
	}
	for i := range clients {
		if permissioned {
			c.must(clientID(0), coordinator.Authorize{Grantee: clientID(i), Allowed: true})
		}
		c.must(clientID(i), coordinator.Join{})
	}
	c.tick(0, coordinator.WaitingForMembers)
	c.tick(3*second, coordinator.Warmup)
	return c
}

// ejectedAndBarred ejects a member in Warmup, ends its authorization, and pauses: it was ejected
// all the same.
func ejectedAndBarred(r *pair) error {
	c := begun(r, 4, true)
	c.must(clientID(0), coordinator.Eject{Client: clientID(2)})
	c.must(clientID(0), coordinator.Authorize{Grantee: clientID(2)})
	c.must(clientID(0), coordinator.Authorize{Grantee: clientID(3)})
	c.must(clientID(0), coordinator.SetPaused{Paused: true})
	c.tick(0, coordinator.Paused)
	return c.err
}

// reportedAndLeft lets three of five members report one model and leave. What the other two
// report counts.
func reportedAndLeft(r *pair) error {
	c := begun(r, 5, false)
	c.tick(30*second, coordinator.RoundTrain)
	c.tick(50*second, coordinator.RoundWitness)
	c.tick(5*second, coordinator.Cooldown) // nobody witnessed
	for i := range 5 {
		c.must(clientID(i), coordinator.ReportCheckpoint{Step: 2, Digest: clientID(100 + i/3)})
	}
	for i := range 3 {
		c.must(clientID(i), coordinator.Withdraw{Client: clientID(i)})
	}
	c.tick(0, coordinator.WaitingForMembers)
	if r.s.Model.Checkpoint.Digest != clientID(101) {
		c.fail("the run goes on from %s", r.s.String())
	}
	return c.err
}
