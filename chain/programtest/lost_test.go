package programtest

import "github.com/psyche-go/psyche/core/coordinator"

// lostStretches plays rounds around the limits of lost stretches: their number, the number in a round, the number
// of rounds that lose them, and members that warm up.
func lostStretches(r *pair) error {
	c := fourMembers(r, func(config *coordinator.Config) {
		config.RetryLost, config.GlobalBatchSizeStart, config.GlobalBatchSizeEnd = true, 64, 64
	})
	for range 7 { // the lost stretches are before the fresh sequences
		c.play(true)
	}
	for _, count := range []int{0, 1, coordinator.MaxRetries - 1, coordinator.MaxRetries, coordinator.MaxRetries + 1, coordinator.MaxLost - 1, coordinator.MaxLost} {
		for _, tries := range []uint8{0, coordinator.MaxTries - 2, coordinator.MaxTries - 1} {
			c.change(func(s *coordinator.State) {
				s.Lost = nil
				for i := range uint64(count) {
					s.Lost = append(s.Lost, coordinator.Stretch{Start: 3 * i, End: 3*i + 1, Tries: tries})
				}
			})
			for _, counts := range []bool{true, false, true} {
				c.play(counts)
			}
		}
	}
	c.change(func(s *coordinator.State) { // as if the model had been replaced in a pause
		s.OriginStep = s.Progress.Step - 2
		s.Marks = []coordinator.Mark{{Step: s.OriginStep - 1, Data: 64}}
	})
	for _, id := range c.r.s.CurrentRound().Members {
		c.must(id, coordinator.ReportCheckpoint{Step: c.r.s.Progress.Step, Digest: clientID(50_000)})
	}
	for warming := range uint8(16) {
		c.change(func(s *coordinator.State) { s.CurrentRound().Warming[0] = warming })
		c.play(true)
	}
	return c.err
}

// play plays a round in which all results count, or none.
func (c *crowd) play(counts bool) {
	if c.err != nil {
		return
	}
	ids := c.r.s.CurrentRound().Members
	if !counts {
		ids = nil
	}
	c.attest(ids)
}
