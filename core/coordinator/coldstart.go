package coordinator

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
