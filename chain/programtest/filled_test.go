package programtest

import (
	"slices"

	"github.com/psyche-go/psyche/core/coordinator"
)

// disturbances change a state to values near a limit that short runs do not reach. A changed state
// may be invalid; coordinator.State.Check decides that.
var disturbances = []func(*generator, *coordinator.State){
	func(g *generator, s *coordinator.State) { // departed; some are members or pending again
		n := oneOf(g, 1, 200, 254, 255, 256)
		s.Departed = nil
		for i := range n {
			s.Departed = append(s.Departed, g.stranger(s, i, oneOf(g, coordinator.Withdrawn, coordinator.Withdrawn, coordinator.Dropped, coordinator.Ejected)))
		}
		if g.rarely(2) { // none of them was a member, or all
			until := uint32(g.IntN(2)) * s.Progress.Step
			for i := range s.Departed {
				s.Departed[i].ProbationUntil = until
			}
		}
		for i, id := range g.ids {
			if g.rarely(2) && i < n {
				s.Departed[n-1-i].ID = id
			}
		}
	},
	func(g *generator, s *coordinator.State) { // exited
		n := min(oneOf(g, 1, 100, 250, 256), coordinator.MaxClients-len(s.Epoch.Clients))
		s.Epoch.Exited = nil
		for i := range n {
			c := g.stranger(s, i*oneOf(g, 1, 1, 2), oneOf(g, coordinator.Dropped, coordinator.Withdrawn, coordinator.Ejected))
			c.ProbationUntil = max(1, c.ProbationUntil)
			s.Epoch.Exited = append(s.Epoch.Exited, c)
		}
	},
	func(g *generator, s *coordinator.State) { // pending
		beside := 0
		if s.RunState == coordinator.Warmup || g.rarely(2) {
			beside = s.HealthyCount()
		}
		few := oneOf(g, 1, 2, 2, 9, 1000)
		for i := range max(0, coordinator.MaxClients-beside-len(s.Pending)-g.IntN(2)) {
			c := g.stranger(s, 5000+i, coordinator.Healthy)
			c.HoldsModel, c.Waited = g.rarely(9), g.rarely(2)
			if !g.rarely(few) {
				c.ProbationUntil = 0
			}
			s.Pending = append(s.Pending, c)
		}
	},
	func(g *generator, s *coordinator.State) { // ejections
		for i := range coordinator.MaxEjections - len(s.Authority.Ejections) - g.IntN(2) {
			s.Authority.Ejections = append(s.Authority.Ejections, coordinator.Ejection{Client: clientID(900_000 + i), Until: s.Progress.Epoch + 1 + uint32(g.IntN(2))})
		}
	},
	func(g *generator, s *coordinator.State) { // authorizations
		if !s.Authority.Permissioned {
			return
		}
		for range coordinator.MaxAuthorizations - len(s.Authority.Authorizations) - g.IntN(2) {
			s.Authority.Grants++
			s.Authority.Authorizations = append(s.Authority.Authorizations, coordinator.Authorization{Grantee: clientID(800_000 + int(s.Authority.Grants)), Number: s.Authority.Grants})
		}
	},
	func(g *generator, s *coordinator.State) { s.Authority.Grants = 1<<32 - 1 - uint32(g.IntN(2)) },
	func(g *generator, s *coordinator.State) {
		s.Closed = s.RunState == coordinator.Paused && g.rarely(2)
		s.PendingResume = s.PendingResume && !s.Closed
	},
	func(g *generator, s *coordinator.State) { g.fillUploads(s) },
	func(g *generator, s *coordinator.State) { // four uploads, and pending clients hold the model
		g.fillUploads(s)
		for i := range s.Pending {
			s.Pending[i].HoldsModel = true
		}
	},
	func(g *generator, s *coordinator.State) { // rollback gaps
		s.RollbackGaps = nil
		for i := range uint32(coordinator.MaxRollbackGaps) {
			s.RollbackGaps = append(s.RollbackGaps, coordinator.RollbackGap{First: 3*i + 1 + uint32(g.IntN(2)), Last: 3*i + 3})
		}
	},
	func(g *generator, s *coordinator.State) { // later, or at the end, when the round is no longer stored
		step := oneOf(g, s.Config.TotalSteps, s.Config.TotalSteps-1, 1<<32-2, 1<<32-3, uint32(100+g.IntN(100)))
		if len(s.Epoch.Rounds) > 0 || s.RunState == coordinator.Warmup {
			return
		}
		s.Config.TotalSteps = max(s.Config.TotalSteps, step)
		s.Progress.Step = step
		s.Progress.Epoch = min(step-1, oneOf(g, s.Progress.Epoch, step-1, 1<<32-4))
		s.Progress.DataIndex = min(uint64(step-1)*(1<<32-1), oneOf(g, s.Progress.DataIndex, g.Uint64()))
		s.OriginStep = min(step, oneOf(g, s.OriginStep, step))
	},
	func(g *generator, s *coordinator.State) { // the run's last rounds
		s.Config.TotalSteps = s.Progress.Step + uint32(g.IntN(3)) - 1
		s.PendingPause = g.rarely(2)
	},
	func(g *generator, s *coordinator.State) { // the epoch's last rounds
		if s.Config.EpochTime != 0 {
			s.Epoch.LastStep = s.Progress.Step + uint32(g.IntN(2))
		}
	},
	func(g *generator, s *coordinator.State) { // nonces
		s.HostNonce, s.Authority.MainNonce, s.Authority.JoinNonce = g.nonce+uint64(g.IntN(3)), g.nonce+uint64(g.IntN(3)), g.nonce
	},
	func(g *generator, s *coordinator.State) { // optimizers of all ages, and holders of the model
		for _, l := range [][]coordinator.Client{s.Pending, s.Epoch.Clients} {
			for i := range l {
				l[i].OptimizerSince = uint32(g.Uint64N(uint64(s.Progress.Step) + 1))
				l[i].HoldsModel = g.rarely(2)
				l[i].Active = g.rarely(2)
			}
		}
	},
	func(g *generator, s *coordinator.State) { // members before and after the end of their probation
		for i := range s.Epoch.Clients {
			s.Epoch.Clients[i].ProbationUntil = oneOf(g, 1, s.Progress.Step, s.Progress.Step+1+uint32(g.IntN(2)))
		}
	},
	func(g *generator, s *coordinator.State) { // only members on probation have old optimizers
		for _, l := range [][]coordinator.Client{s.Pending, s.Epoch.Clients} {
			for i := range l {
				l[i].OptimizerSince, l[i].ProbationUntil = s.Progress.Step, 1
				if g.rarely(2) {
					l[i].OptimizerSince, l[i].ProbationUntil = 1, 1<<32-1
				}
			}
		}
	},
	func(g *generator, s *coordinator.State) { // no member holds the model
		for i := range s.Pending {
			s.Pending[i].HoldsModel = false
		}
	},
	func(g *generator, s *coordinator.State) { s.PendingPause = g.rarely(3) },
	func(g *generator, s *coordinator.State) { // members that left, or that the run no longer admits
		for i := range s.Epoch.Clients {
			s.Epoch.Clients[i].State = oneOf(g, 0, 0, 0, coordinator.Dropped, coordinator.Withdrawn, coordinator.Ejected)
		}
		if a := &s.Authority; len(a.Authorizations) > 0 {
			a.Authorizations = slices.Delete(a.Authorizations, 0, g.IntN(len(a.Authorizations)))
		}
		s.PendingPause = g.rarely(2)
	},
	func(g *generator, s *coordinator.State) { // reports of two models, some of them by members that left
		for _, clients := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited} {
			for i := range clients {
				c := &clients[i]
				if left := oneOf(g, 0, 0, coordinator.Withdrawn, coordinator.Withdrawn, coordinator.Dropped); c.State == coordinator.Healthy || left != 0 {
					c.State = left
				}
				c.HeldOut = g.claim().Loss
				if s.Progress.Step > 2 {
					c.Report = coordinator.Recorded{Step: s.Progress.Step - 1 - uint32(g.IntN(6)/4), Digest: [32]byte{byte(g.IntN(5) / 3)}}
				}
			}
		}
	},
	func(g *generator, s *coordinator.State) { g.fillCommit(s) },
	func(g *generator, s *coordinator.State) { // holders of each earlier model, and of the checkpoint
		g.fillUploads(s)
		for _, l := range [][]coordinator.Client{s.Pending, s.Epoch.Clients} {
			for i := range l {
				l[i].HoldsEarlier = s.Progress.Step - 1 - min(s.Progress.Step-1, uint32(g.IntN(12)))
				l[i].HoldsModel = g.rarely(6)
			}
		}
	},
	func(g *generator, s *coordinator.State) { g.fillChallenges(s) },
	func(g *generator, s *coordinator.State) { g.fillLevels(s) },
	func(g *generator, s *coordinator.State) { g.fillLost(s) },
	func(g *generator, s *coordinator.State) { g.fillLost(s) },
	func(g *generator, s *coordinator.State) { g.fillTrials(s, 1+g.IntN(coordinator.MaxTrials)) },
	func(g *generator, s *coordinator.State) { // the maximum number of trials, whose parties and jurors have records
		g.fillTrials(s, coordinator.MaxTrials)
		for i := range s.Epoch.Clients {
			c := &s.Epoch.Clients[i]
			c.Complaints = g.complaints()
			c.Lateness = oneOf(g, coordinator.OnTime, coordinator.OnTime, coordinator.FoundLate, coordinator.Late, coordinator.Slow)
			c.Returns = oneOf[uint8](g, 0, 0, 1, coordinator.MaxReturns)
		}
	},
	func(g *generator, s *coordinator.State) {
		s.Config.VerificationPercent = oneOf[uint8](g, 0, 30, 60, 100)
	},
	func(g *generator, s *coordinator.State) { s.MinimumSince = oneOf(g, 0, 1, g.now, 1<<64-1) },
}

// stranger returns a client that occurs only in injected states.
func (g *generator) stranger(s *coordinator.State, i int, state coordinator.ClientState) coordinator.Client {
	return coordinator.Client{
		ID: clientID(700_000 + i), State: state, Nonce: g.Uint64() >> 40, ExitedHeight: uint32(g.IntN(3)),
		OptimizerSince: uint32(g.Uint64N(uint64(s.Progress.Step) + 1)), HoldsModel: g.rarely(2), Active: g.rarely(2),
		ProbationUntil: oneOf(g, 0, 1, s.Progress.Step, s.Progress.Step+1, 1<<32-1),
	}
}

// fillCommit gives the running epoch an intermediate checkpoint that some members hold and some
// have reported.
func (g *generator) fillCommit(s *coordinator.State) {
	step := s.Progress.Step - 1 - uint32(g.IntN(3))
	if s.RunState != coordinator.RoundTrain && s.RunState != coordinator.RoundWitness && s.RunState != coordinator.Cooldown || step >= s.Progress.Step || step < s.Epoch.StartStep {
		return
	}
	s.Epoch.Commit = coordinator.Recorded{Step: step, Digest: [32]byte{byte(g.IntN(2))}}
	for i := range s.Epoch.Clients {
		c := &s.Epoch.Clients[i]
		c.HoldsEarlier = oneOf(g, 0, step, step, step-1)
		c.Report = oneOf(g, coordinator.Recorded{}, s.Epoch.Commit, coordinator.Recorded{Step: step, Digest: [32]byte{2}})
	}
}

// fillLevels gives clients and rounds levels, offers and excuses.
func (g *generator) fillLevels(s *coordinator.State) {
	s.Config.SharesBySpeed = !g.rarely(4)
	near, spread := oneOf[uint8](g, 1, 1, 20, 80, 215, 250), oneOf(g, 2, 40, 100)
	for _, clients := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited} {
		for i := range clients {
			c := &clients[i]
			c.Offer, c.Level = max(1, g.level()), near+uint8(g.IntN(spread))
			c.Offered, c.Excuses = g.rarely(3), uint8(g.IntN(coordinator.MaxExcuses+1))
		}
	}
	for i := range s.Epoch.Rounds {
		r := &s.Epoch.Rounds[i]
		for member := range r.Members {
			r.Levels[member] = near + uint8(g.IntN(spread))
		}
	}
}

// fillLost gives the run many lost stretches, marks at all its models, and rounds with retries and warming members.
func (g *generator) fillLost(s *coordinator.State) {
	s.Config.RetryLost = !g.rarely(6)
	s.Progress.DataIndex, s.Position = 5000, 9000
	for i := range s.Epoch.Rounds {
		r := &s.Epoch.Rounds[len(s.Epoch.Rounds)-1-i]
		r.Retries = nil
		for j := range min(uint64(g.IntN(coordinator.MaxRetries+1)), uint64(r.BatchSize/2)) {
			r.Retries = append(r.Retries, coordinator.Stretch{Start: 3 * j, End: 3*j + 1, Tries: uint8(g.IntN(coordinator.MaxTries))})
		}
		fresh := r.NextData() - r.DataIndex
		end, position := s.Progress.DataIndex, s.Position
		if i > 0 {
			end, position = s.Epoch.Rounds[len(s.Epoch.Rounds)-i].DataIndex, s.Epoch.Rounds[len(s.Epoch.Rounds)-i].Position
		}
		r.DataIndex, r.Position = end-fresh, position-uint64(r.BatchSize)
		for member := range r.Members {
			r.Warming[member/8] &^= 1 << (member % 8)
			if g.rarely(4) {
				r.Warming[member/8] |= 1 << (member % 8)
			}
		}
	}
	s.Lost = nil
	at := uint64(100)
	for range oneOf(g, 0, 1, 5, 60, coordinator.MaxLost-3, coordinator.MaxLost-1, coordinator.MaxLost) {
		start := at + uint64(g.IntN(3))
		at = start + 1 + uint64(g.IntN(9))
		s.Lost = append(s.Lost, coordinator.Stretch{Start: start, End: at, Tries: uint8(g.IntN(coordinator.MaxTries))})
	}
	g.Shuffle(len(s.Lost), func(i, j int) { s.Lost[i], s.Lost[j] = s.Lost[j], s.Lost[i] })
	s.Marks = nil
	data := uint64(g.IntN(600))
	for step := s.Progress.Step - min(s.Progress.Step, uint32(g.IntN(14))); step < s.Progress.Step && len(s.Marks) < coordinator.MaxMarks; step++ {
		s.Marks = append(s.Marks, coordinator.Mark{Step: step, Data: data})
		data += uint64(g.IntN(400))
	}
	if n := len(s.Marks); n > 0 && g.rarely(3) { // after the model, no sequence was fresh, or one
		s.Marks[n-1].Data = s.Progress.DataIndex - uint64(g.IntN(2))
	}
}

// fillUploads makes the checkpoint a model from peers, and adds earlier models and uploads of them.
func (g *generator) fillUploads(s *coordinator.State) {
	c := &s.Model.Checkpoint
	if s.Progress.Step < 4 {
		return
	}
	if !c.FromPeers() {
		origin := c.Kind
		c.Kind, c.Origin = coordinator.CheckpointP2P, origin
		if origin == coordinator.CheckpointGcs {
			c.Kind = coordinator.CheckpointP2PGcs
		}
	}
	c.Step, c.Digest = s.Progress.Step-1-uint32(g.IntN(2)), clientID(int(s.Progress.Step))
	s.Earlier, s.Uploads = nil, nil
	for step := c.Step - min(c.Step, uint32(g.IntN(coordinator.MaxEarlier+3))); step < c.Step && len(s.Earlier) < coordinator.MaxEarlier; step++ {
		s.Earlier = append(s.Earlier, coordinator.Recorded{Step: step, Digest: clientID(int(step))})
	}
	known := append(slices.Clone(s.Earlier), coordinator.Recorded{Step: c.Step, Digest: c.Digest})
	known = known[g.IntN(len(known)):]
	around, since := g.rarely(2), uint32(g.IntN(2))*s.Progress.Step // the reporters are present and have the same age
	for i := range oneOf(g, 0, 1, 2, 3, coordinator.MaxUploads, coordinator.MaxUploads) {
		r := oneOf(g, known...)
		reporter := clientID(600_000 + i)
		if (around || g.rarely(2)) && i < len(g.ids) {
			reporter = g.ids[i]
		}
		s.Uploads = append(s.Uploads, coordinator.Upload{Reporter: reporter, Step: r.Step, Digest: r.Digest, Tries: uint8(g.IntN(coordinator.MaxUploadTries + 1)), Since: oneOf(g, since, since, 0, 1, s.Progress.Step+1, 1<<32-1), Place: coordinator.Location{
			Kind: coordinator.CheckpointGcs, Repo: "bucket", Revision: oneOf(g, "", "v", commit),
		}})
	}
	s.Earlier = s.Earlier[oneOf(g, 0, 0, len(s.Earlier)/2, len(s.Earlier)):] // the run has forgotten some of them
}

// disturb changes a state so that it remains valid, and loads it.
func (g *generator) disturb(r *pair) error {
	for range 1 + g.IntN(4) {
		s := r.s.Clone()
		oneOf(g, disturbances...)(g, &s)
		if s.Check() != nil {
			continue
		}
		if err := r.load(s); err != nil {
			return err
		}
	}
	return nil
}

// filled continues runs from states with full lists, extreme counters, and clients with records
// that a short run does not give them.
func filled(r *pair, seed uint64) error {
	g := newGenerator(seed, 6)
	genesis := g.genesis()
	genesis.Config.TotalSteps, genesis.Config.InitMinClients = 200, 2
	genesis.Permissioned, genesis.Paused = g.rarely(2), g.rarely(6)
	genesis.Progress = coordinator.Progress{Epoch: 5, Step: 30, DataIndex: 100}
	if code, err := r.genesis(genesis); code != 0 || err != nil {
		return err
	}
	if err := g.admit(r); err != nil {
		return err
	}
	for r.s.RunState != coordinator.Finished {
		if err := g.disturb(r); err != nil {
			return err
		}
		g.now += oneOf[uint64](g, 0, 0, second, 60*second)
		if _, err := r.tick(g.now, g.Uint64()); err != nil {
			return err
		}
		if err := g.walk(r, g.IntN(20)); err != nil {
			return err
		}
	}
	return nil
}
