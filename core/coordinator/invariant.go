package coordinator

import (
	"math"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
)

// Check returns nil if the state obeys the invariants below, and otherwise a *decodeError that names
// the broken one. They hold for every state that New, Apply and Tick can reach and that Decode accepts.
//
//   - Configuration, model and run id are valid. RunState, ClientState and checkpoint kinds exist.
//   - A run is Finished exactly when its last step is done or it was closed. A closed run is Paused or
//     Finished. A pending pause or resume fits the RunState.
//   - The number of finished epochs is less than the step. A round has at most 2³²−1 sequences, so no counter can overflow.
//   - Authorizations exist only in a permissioned run, in the order of their numbers, one for each
//     grantee. No grantee is its own delegate. Ejections by the main authority end in the next epoch
//     or the one after it, others within 65,536 epochs.
//   - Every list is within its bound and names no client twice. Healthy members and pending clients
//     are disjoint, and in Warmup at most MaxClients together.
//   - A pending client is Healthy, may join, is not ejected, is not late, has no excuses and has not returned. Only
//     pending clients wait for a draw. Members and exited clients have a probation, possibly finished.
//     Exited clients are not Healthy. No client returns more than MaxReturns times, or has more than
//     MaxExcuses excuses, in a term.
//     A client with a level has sent an offer.
//   - WaitingForMembers and Paused have no members and no Ready clients.
//   - An epoch's first step is the step after its Warmup.
//   - The steps and heights of successive rounds increase by one. The last round is at Progress.Step,
//     or before it once the rounds of the epoch are over. The rounds hold disjoint, adjacent ranges of
//     fresh sequences that end at Progress.DataIndex, and adjacent positions that end at Position.
//   - Lost stretches do not overlap, nor do the retries of a round, which are at most half of its
//     sequences. All are before the fresh sequences.
//   - The witnesses of a round that sent proofs were elected, are members, and occur once. Their
//     filters have no more bits than the round's items can set. Only members are warming or excused, or
//     have levels.
//   - Trials have different slots. Each is about a result of a step before its accusation. At most one
//     trial is about each result, at most two are about one client, and each accuser has at most one.
//     The accuser is not the accused. A jury exists from the next round on, and has not decided. Only
//     jurors of an open trial vote, each once.
//   - The checkpoint refers to a trained step. It names an origin exactly if it is from peers. It has a
//     digest only if it is from peers.
//   - Reports, members' models and the intermediate checkpoint refer to finished steps. An intermediate
//     checkpoint exists only during rounds or in Cooldown, and is later than the checkpoint.
//   - Uploads refer to checkpoints no later than the current one. An upload of the current step has the
//     current digest. Each reporter has at most one upload, at a valid location. Earlier checkpoints and
//     rollback gaps are in the order of their steps, and rollback gaps do not overlap. If the checkpoint is not from
//     peers, there are neither uploads nor earlier checkpoints.
func (s *State) Check() error {
	if broken := s.brokenInvariant((*Round).electedSet); broken != "" {
		return &decodeError{Field: broken}
	}
	return nil
}

// brokenInvariant describes the broken invariant. elected computes the witnesses of a round. The
// caller passes it, so that a Decoder can cache these results, which cost more than all other
// checks.
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
	if broken := s.brokenLost(); broken != "" {
		return broken
	}
	return s.brokenTrials()
}

// brokenProgress checks that the counters of the run are consistent and cannot overflow.
func (s *State) brokenProgress() string {
	if s.Progress.Step == 0 || s.Progress.Step-1 > s.Config.TotalSteps {
		return "step"
	}
	begun := uint64(s.Progress.Step) - 1
	if s.RunState == RoundTrain || s.RunState == RoundWitness {
		begun++
	}
	if max(s.Progress.DataIndex, s.Position) > begun*(1<<32-1) {
		return "data index"
	}
	if s.Progress.Epoch >= s.Progress.Step {
		return "epoch number"
	}
	return ""
}

// brokenEnd checks that a run is Finished exactly if its last step is done or it was closed.
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
			if client.State > Ejected || client.Lateness > Slow || client.Returns > MaxReturns || client.Excuses > MaxExcuses ||
				client.Level != 0 && client.Offer == 0 || client.OptimizerSince > s.Progress.Step || client.Waited && list.name != "pending" {
				return list.name
			}
		}
	}
	if slices.ContainsFunc(s.Pending, func(c Client) bool { return c.Lateness != OnTime || c.Returns > 0 || c.Excuses > 0 || c.Offered }) {
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

// brokenReports describes an invalid report of a model.
func (s *State) brokenReports() string {
	e := &s.Epoch
	none := Recorded{}
	if e.Commit.Step == 0 && e.Commit != none || e.Commit.Step >= s.Progress.Step || !s.active() && e.Commit != none {
		return "intermediate checkpoint"
	}
	if e.Commit != none && e.Commit.Step <= s.Model.Checkpoint.Step {
		return "intermediate checkpoint"
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
			r.DataIndex != rounds[i-1].NextData() || r.Position != rounds[i-1].NextPosition()) {
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
		s.Progress.DataIndex != newest.NextData() || s.Position != newest.NextPosition() {
		return "rounds"
	}
	return ""
}

// broken describes a broken invariant inside a round. It checks the election of witnesses only for
// rounds with proofs.
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
		switch {
		case r.Warming.Has(member):
			return "warming members"
		case r.Levels[member] != 0:
			return "levels"
		case r.Excused.Has(member):
			return "excused members"
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
