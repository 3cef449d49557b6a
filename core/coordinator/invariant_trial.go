package coordinator

// brokenTrials describes an invalid open trial, or an invalid vote in one.
func (s *State) brokenTrials() string {
	if len(s.Trials) > MaxTrials {
		return "trials"
	}
	var slots uint8
	for i := range s.Trials {
		t := &s.Trials[i]
		if t.Slot >= MaxTrials || slots>>t.Slot&1 == 1 || t.broken(s) || s.clashes(i) {
			return "trials"
		}
		slots |= 1 << t.Slot
	}
	return s.brokenJurors()
}

// broken reports whether the trial itself is invalid. Its jury is drawn when the next round starts.
func (t *Trial) broken(s *State) bool {
	running := s.RunState == RoundTrain || s.RunState == RoundWitness
	return t.Fault < FaultResult || t.Fault > maxFault || t.Accused == t.Accuser ||
		t.Step == 0 || t.Step >= t.Since || t.Since > s.Progress.Step || t.SinceTime > s.StateStart ||
		t.Jurors == 0 && (s.Progress.Step-t.Since > 1 || running && t.Since != s.Progress.Step) ||
		t.Jurors == 1 || t.Jurors > MaxJury || int(t.Guilty)+int(t.Innocent) > int(t.Jurors) ||
		t.Convicts() || t.Acquits()
}

// clashes reports whether an earlier trial in the list forbids the trial at this index.
func (s *State) clashes(index int) bool {
	of, t := 1, &s.Trials[index]
	for i := range index {
		u := &s.Trials[i]
		if u.Accuser == t.Accuser || u.Accused == t.Accused && u.Step == t.Step {
			return true
		}
		if u.Accused == t.Accused {
			of++
		}
	}
	return of > maxTrialsOfOne
}

// brokenJurors checks that only jurors of open trials have voted, and that there are not too many
// jurors. There may be fewer, because the state may have forgotten clients that left.
func (s *State) brokenJurors() string {
	names := [...]string{"clients", "pending", "exited", "departed"}
	var jurors, voted [MaxTrials]int
	for l, clients := range s.clientLists() {
		for i := range clients {
			c := &clients[i]
			if c.Voted&^c.Juror != 0 {
				return names[l]
			}
			for slot := range MaxTrials {
				jurors[slot] += int(c.Juror >> slot & 1)
				voted[slot] += int(c.Voted >> slot & 1)
			}
		}
	}
	for i := range s.Trials {
		t := &s.Trials[i]
		if jurors[t.Slot] > int(t.Jurors) || voted[t.Slot] > int(t.Guilty)+int(t.Innocent) {
			return "jurors"
		}
		jurors[t.Slot] = 0
	}
	if jurors != [MaxTrials]int{} {
		return "jurors"
	}
	return ""
}
