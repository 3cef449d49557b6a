package coordinator

import (
	"math"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
)

// Check returns nil for a state that obeys the invariants below, which hold for every
// state that New, Apply and Tick can reach and that Decode accepts; else a
// *decodeError that names the broken one.
//
//   - Configuration, model and run id are valid; RunState and every ClientState exist.
//   - A run is Finished exactly when its last step is done or it was closed.
//   - An epoch has at least one round, and a round at most 2³²−1 sequences: the numbers
//     of both cannot overflow.
//   - Authorizations are of a permissioned run, in the order of their numbers, one for
//     each grantee; whoever is pending may join and is not ejected.
//   - Every list is within its bound and names no client twice; healthy members and
//     pending clients are disjoint, and in Warmup at most MaxClients together.
//   - Nobody is found late, or has returned, while pending; only a pending client waited for a
//     draw; who is or was a member of the epoch has a probation; nobody returns more than
//     MaxReturns times in a term.
//   - Nobody is a member, or Ready, in WaitingForMembers and Paused.
//   - An epoch's first step is the one that Warmup leads to.
//   - The rounds follow each other by one in step and height, end at Progress.Step
//     (before it once they are over), and hold disjoint, adjacent stretches of data
//     that end at Progress.DataIndex.
//   - A round's quorum is ⌈2n/3⌉ of its elected witnesses; each witness is elected, a
//     member, and there once, and its filters have no more bits than the round's
//     items can set. Only members' results are skipped.
//   - Trials are of different slots, of results of earlier steps, two of one client at most and one
//     of each result; nobody accuses itself, or twice at a time. A jury is drawn when the next
//     round begins, and has not decided; only jurors of an open trial vote, and each once.
//   - The checkpoint is not of a step that was not trained.
//   - Reports, what members hold, and the commit point are of steps that are done; there is a commit
//     point only while rounds run or in Cooldown, and it is later than the checkpoint.
//   - Uploads are of recorded checkpoints, one of each reporter, at places that can be;
//     earlier checkpoints, and lapses, are in the order of their steps.
func (s *State) Check() error {
	if broken := s.brokenInvariant((*Round).electedSet); broken != "" {
		return &decodeError{Field: broken}
	}
	return nil
}

// brokenInvariant names what is broken. The elections of witnesses, which cost more than
// everything else, are the caller's.
func (s *State) brokenInvariant(elected func(*Round, Config) MemberSet) string {
	if s.RunState == Uninitialized || s.RunState > Paused {
		return "run state"
	}
	if validateRunID(s.RunID) != nil {
		return "run id"
	}
	if s.Config.Validate() != nil {
		return "config"
	}
	if s.Model.validate(s.Config) != nil {
		return "model"
	}
	if broken := s.brokenProgress(); broken != "" {
		return broken
	}
	if s.Model.Checkpoint.Step >= s.Progress.Step {
		return "checkpoint step"
	}
	if broken := s.brokenEnd(); broken != "" {
		return broken
	}
	if broken := s.brokenUploads(); broken != "" {
		return broken
	}
	if broken := s.Authority.broken(s.Progress.Epoch); broken != "" {
		return broken
	}
	if s.PendingResume && s.RunState != Paused || s.PendingPause && (s.RunState == Paused || s.RunState == Finished) {
		return "pending pause"
	}
	if broken := s.brokenReports(); broken != "" {
		return broken
	}
	if broken := s.brokenMembership(); broken != "" {
		return broken
	}
	if broken := s.brokenRounds(elected); broken != "" {
		return broken
	}
	return s.brokenTrials()
}

// brokenProgress checks that the numbers of the run fit together and cannot overflow.
func (s *State) brokenProgress() string {
	if s.Progress.Step == 0 || s.Progress.Step-1 > s.Config.TotalSteps {
		return "step"
	}
	begun := uint64(s.Progress.Step) - 1
	if s.RunState == RoundTrain || s.RunState == RoundWitness {
		begun++
	}
	if s.Progress.DataIndex > begun*(1<<32-1) {
		return "data index"
	}
	if s.Progress.Epoch >= s.Progress.Step {
		return "epoch number"
	}
	return ""
}

// brokenEnd checks that a run is Finished exactly after its last step or when closed.
func (s *State) brokenEnd() string {
	done := s.Progress.Step > s.Config.TotalSteps
	switch s.RunState {
	case Finished:
		if !done && !s.Closed {
			return "run state"
		}
	case Cooldown:
	default:
		if done {
			return "step"
		}
	}
	if s.Closed && (s.RunState != Paused && s.RunState != Finished || s.PendingResume) {
		return "closed"
	}
	return ""
}

func (a *Authority) broken(epoch uint32) string {
	if len(a.Ejections) > MaxEjections {
		return "ejections"
	}
	ejected := make([]ClientID, len(a.Ejections))
	for i, e := range a.Ejections {
		ejected[i] = e.Client
		if e.Until <= epoch || e.Until-epoch > 1+math.MaxUint16 || e.Reason > AccusedWrongly || e.Reason == ByAuthority && e.Until-epoch > 2 {
			return "ejections"
		}
	}
	if repeats(ejected) {
		return "ejections"
	}
	if len(a.Authorizations) > MaxAuthorizations || !a.Permissioned && len(a.Authorizations) > 0 {
		return "authorizations"
	}
	grantees := make([]ClientID, len(a.Authorizations))
	last := uint32(0)
	for i, x := range a.Authorizations {
		if x.Number <= last || x.Number > a.Grants {
			return "authorizations"
		}
		last = x.Number
		grantees[i] = x.Grantee
		if len(x.Delegates) > MaxDelegates || repeats(x.Delegates) || slices.Contains(x.Delegates, x.Grantee) {
			return "delegates"
		}
	}
	if repeats(grantees) {
		return "authorizations"
	}
	return ""
}

func (s *State) brokenMembership() string {
	e := &s.Epoch
	lists := []struct {
		name    string
		clients []Client
	}{{"clients", e.Clients}, {"exited", e.Exited}, {"pending", s.Pending}, {"departed", s.Departed}}
	for _, list := range lists {
		if len(list.clients) > MaxClients || repeats(clientIDs(list.clients)) {
			return list.name
		}
		for _, client := range list.clients {
			if client.State > Ejected || client.Lateness > Slow || client.Returns > MaxReturns ||
				client.OptimizerSince > s.Progress.Step || client.Waited && list.name != "pending" {
				return list.name
			}
		}
	}
	if slices.ContainsFunc(s.Pending, func(c Client) bool { return c.Lateness != OnTime || c.Returns > 0 }) {
		return "pending"
	}
	if slices.ContainsFunc(e.Clients, Client.isNew) {
		return "clients"
	}
	if slices.ContainsFunc(e.Exited, Client.isNew) {
		return "exited"
	}
	isHealthy := func(c Client) bool { return c.State == Healthy }
	between := s.RunState == WaitingForMembers || s.RunState == Paused
	if between && len(e.Clients) > 0 {
		return "clients"
	}
	if slices.ContainsFunc(e.Exited, isHealthy) {
		return "exited"
	}
	admits := s.Authority.admitted()
	if slices.ContainsFunc(s.Pending, func(c Client) bool { return c.State != Healthy || !admits(c.ID) || s.isEjected(c.ID) }) {
		return "pending"
	}
	places := clientIDs(s.Pending)
	for _, client := range e.Clients {
		if client.State == Healthy {
			places = append(places, client.ID)
		}
	}
	if s.RunState == Warmup && len(places) > MaxClients || repeats(places) {
		return "pending"
	}
	if len(e.Ready) > MaxClients || repeats(e.Ready) || between && len(e.Ready) > 0 {
		return "ready"
	}
	return ""
}

// brokenReports names what is wrong with the reports of models.
func (s *State) brokenReports() string {
	e := &s.Epoch
	none := Recorded{}
	if e.Commit.Step == 0 && e.Commit != none || e.Commit.Step >= s.Progress.Step || !s.active() && e.Commit != none {
		return "commit point"
	}
	if e.Commit != none && e.Commit.Step <= s.Model.Checkpoint.Step {
		return "commit point"
	}
	for _, clients := range s.clientLists() {
		for i := range clients {
			c := &clients[i]
			if c.Report.Step == 0 && c.Report != none || c.Report.Step >= s.Progress.Step || c.HoldsEarlier >= s.Progress.Step {
				return "reports"
			}
		}
	}
	return ""
}

func (s *State) brokenRounds(elected func(*Round, Config) MemberSet) string {
	rounds := s.Epoch.Rounds
	if len(rounds) > StoredRounds || s.active() && len(rounds) == 0 || s.RunState == Warmup && len(rounds) > 0 {
		return "rounds"
	}
	if s.RunState == Warmup && s.Epoch.StartStep != s.Progress.Step {
		return "epoch's start step"
	}
	for i := range rounds {
		r := &rounds[i]
		if broken := r.broken(s.Config, elected); broken != "" {
			return broken
		}
		if i > 0 && (r.Step != rounds[i-1].Step+1 || r.Height != rounds[i-1].Height+1 ||
			r.DataIndex != rounds[i-1].DataIndex+uint64(rounds[i-1].BatchSize)) {
			return "rounds"
		}
	}
	if len(rounds) == 0 {
		return ""
	}
	newest := &rounds[len(rounds)-1]
	next := newest.Step + 1
	if s.RunState == RoundTrain || s.RunState == RoundWitness {
		next = newest.Step
	}
	if s.Progress.Step != next || uint64(newest.Height)+uint64(s.Epoch.StartStep) != uint64(newest.Step) ||
		s.Progress.DataIndex != newest.DataIndex+uint64(newest.BatchSize) {
		return "rounds"
	}
	return ""
}

// broken names what is wrong with a round by itself. The election of witnesses is checked
// only for rounds in which somebody witnessed.
func (r *Round) broken(c Config, elected func(*Round, Config) MemberSet) string {
	if len(r.Members) == 0 || len(r.Members) > MaxClients || repeats(r.Members) {
		return "round members"
	}
	if r.DataIndex > 1<<64-1-uint64(r.BatchSize) {
		return "round data index"
	}
	places := min(len(r.Members), MaxWitnesses)
	if c.WitnessNodes != 0 {
		places = min(len(r.Members), int(c.WitnessNodes))
	}
	if int(r.WitnessesElected) != places || int(r.WitnessesNeeded) != assign.Quorum(places) {
		return "witnesses elected"
	}
	for member := len(r.Members); member < MaxClients; member++ {
		if r.Warming.Has(member) {
			return "warming members"
		}
	}
	if len(r.Witnesses) == 0 {
		return ""
	}
	awaited := elected(r, c)
	for i := range r.Witnesses {
		if r.overfills(&r.Witnesses[i].Participants, &r.Witnesses[i].Commitments, c) {
			return "witnesses"
		}
		member := int(r.Witnesses[i].Member)
		if !awaited.Has(member) {
			return "witnesses"
		}
		awaited.remove(member)
	}
	return ""
}

func clientIDs(clients []Client) []ClientID {
	ids := make([]ClientID, len(clients), MaxClients)
	for i := range clients {
		ids[i] = clients[i].ID
	}
	return ids
}
