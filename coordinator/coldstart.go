package coordinator

// ColdStartBounds returns the first step of the running epoch and the number of steps
// over which the learning rate rises because all optimizers started afresh with it; 0
// steps in an epoch that did not start cold.
func (s *State) ColdStartBounds() (start, steps uint32) {
	if !s.Epoch.ColdStart {
		return s.Epoch.StartStep, 0
	}
	return s.Epoch.StartStep, s.Model.ColdStartWarmupSteps
}

// LearningRateScale returns by which fraction the scheduled learning rate of a step of
// the running epoch is multiplied: from 0 at a cold start, linearly, to 1 after
// Model.ColdStartWarmupSteps. It is the same for every member.
func (s *State) LearningRateScale(step uint32) (numerator, denominator uint32) {
	start, steps := s.ColdStartBounds()
	if step < start || step-start >= steps {
		return 1, 1
	}
	return step - start, steps
}

// warm fixes whose results of a round that begins do not count because their
// optimizers are younger than Model.ColdStartWarmupSteps. When there is no trainer with
// an older one, as after a cold start, all results count.
func (s *State) warm(round *Round) {
	if s.Model.ColdStartWarmupSteps == 0 {
		return
	}
	var warming MemberSet
	experienced := false
	for _, a := range round.Assignments(s.Config) {
		client, ok := s.Member(round.Members[a.Member])
		if ok && round.Step-client.OptimizerSince < s.Model.ColdStartWarmupSteps {
			warming.add(a.Member)
		} else {
			experienced = true
		}
	}
	if experienced {
		round.Warming = warming
	}
}
