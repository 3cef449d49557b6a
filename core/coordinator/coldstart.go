package coordinator

// coldStartBounds returns the first step of the running epoch and the number of steps over which
// the learning rate rises because the epoch started with fresh optimizers. steps is 0 if the epoch
// did not start cold.
func (s *State) coldStartBounds() (start, steps uint32) {
	if !s.Epoch.ColdStart {
		return s.Epoch.StartStep, 0
	}
	return s.Epoch.StartStep, s.Model.ColdStartWarmupSteps
}

// LearningRateScale returns the factor for the scheduled learning rate of a step of the running
// epoch, as a fraction. It rises linearly from 0 at a cold start to 1 after
// Model.ColdStartWarmupSteps. It is the same for all members.
func (s *State) LearningRateScale(step uint32) (numerator, denominator uint32) {
	start, steps := s.coldStartBounds()
	if step < start || step-start >= steps {
		return 1, 1
	}
	return step - start, steps
}

// warm determines the trainers whose results do not count in a starting round. First, these are the
// trainers on probation, if at least one trainer is not on probation. Second, among the other
// trainers, these are the ones whose optimizers are younger than Model.ColdStartWarmupSteps, if at
// least one of them has an older optimizer. Therefore the results of at least one trainer count.
func (s *State) warm(round *Round) {
	if s.Model.ColdStartWarmupSteps == 0 && s.probation() == 0 {
		return
	}
	var probation, warming MemberSet
	regular, experienced := false, false
	clients, assignments := lookup{clients: s.Epoch.Clients}, round.Assignments(s.Config)
	for _, a := range assignments {
		client := clients.find(round.Members[a.Member])
		if client != nil && s.onProbation(client, round.Step) {
			probation.add(a.Member)
		} else {
			regular = true
		}
		if client != nil && round.Step-client.OptimizerSince < s.Model.ColdStartWarmupSteps {
			warming.add(a.Member)
		}
	}
	if !regular {
		probation = MemberSet{}
	}
	for _, a := range assignments {
		experienced = experienced || !probation.Has(a.Member) && !warming.Has(a.Member)
	}
	for i := range probation {
		round.Warming[i] = probation[i]
		if experienced {
			round.Warming[i] |= warming[i]
		}
	}
}
