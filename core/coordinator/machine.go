package coordinator

import (
	"crypto/sha256"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
)

// Genesis contains the initial values of a run.
type Genesis struct {
	RunID         string
	Host          ClientID // ticks the run
	MainAuthority ClientID // the host if zero
	JoinAuthority ClientID // the main authority if zero
	Permissioned  bool     // only keys that the join authority authorized may join
	Paused        bool     // start Paused, until the main authority configures and resumes the run
	Draws         [32]byte // State.DrawCommitment; zero if draws do not open commitments
	Config        Config
	Model         Model

	// Progress is the progress of the run that produced this run's model; zero for a new model. The
	// optimizer states of that run are lost, so the first epoch starts cold.
	Progress Progress
}

// New returns the state of a permissionless run that waits for its first members and whose main
// authority is the host. It returns the errors of Genesis.State.
func New(runID string, host ClientID, config Config, model Model) (State, error) {
	return Genesis{RunID: runID, Host: host, Config: config, Model: model}.State()
}

// State returns the first state of the run. If Config, the model or the run ID breaks a rule, it
// returns a *ConfigError. The checkpoint must be available without peers.
func (g Genesis) State() (State, error) {
	model := g.Model
	if err := validateRunID(g.RunID); err != nil {
		return State{}, err
	}
	if err := g.Config.Validate(); err != nil {
		return State{}, err
	}
	if err := model.validate(g.Config); err != nil {
		return State{}, err
	}
	if !model.Checkpoint.Kind.isOrigin() {
		return State{}, &ConfigError{Key: "checkpoint", Problem: "must not be of a P2P kind when a run begins: no member holds it yet"}
	}
	model.Definition = append([]byte(nil), model.Definition...)
	state := State{
		RunID:     g.RunID,
		Host:      g.Host,
		Authority: Authority{Main: g.MainAuthority, Join: g.JoinAuthority, Permissioned: g.Permissioned},
		RunState:  WaitingForMembers,
		Config:    g.Config,
		Model:     model,
		Progress:  g.Progress,
		SeedChain: sha256.Sum256(append([]byte("psyche/seed/v1"), g.RunID...)),

		DrawCommitment: g.Draws,
	}
	if state.Authority.Main == (ClientID{}) {
		state.Authority.Main = g.Host
	}
	if state.Authority.Join == (ClientID{}) {
		state.Authority.Join = state.Authority.Main
	}
	if g.Paused {
		state.RunState = Paused
	}
	if g.Progress == (Progress{}) {
		state.Progress.Step = 1
	}
	state.ColdStart = state.Progress.Step > 1
	state.OriginStep = state.Progress.Step
	state.Position = state.Progress.DataIndex
	state.mark(state.OriginStep-1, state.Progress.DataIndex)
	if broken := state.brokenInvariant((*Round).electedSet); broken != "" {
		return State{}, &ConfigError{Key: "progress", Problem: "does not fit: " + broken}
	}
	return state, nil
}

// Clone returns a copy that shares no memory with s.
func (s *State) Clone() State {
	c := *s
	c.Authority = s.Authority.clone()
	c.Model.Definition = slices.Clone(s.Model.Definition)
	c.Epoch.Clients = slices.Clone(s.Epoch.Clients)
	c.Epoch.Exited = slices.Clone(s.Epoch.Exited)
	c.Epoch.Rounds = slices.Clone(s.Epoch.Rounds)
	for i := range c.Epoch.Rounds {
		r := &c.Epoch.Rounds[i]
		r.Members = slices.Clone(r.Members)
		r.Witnesses = slices.Clone(r.Witnesses)
		r.Retries = slices.Clone(r.Retries)
	}
	c.Epoch.Ready = slices.Clone(s.Epoch.Ready)
	c.Pending = slices.Clone(s.Pending)
	c.Departed = slices.Clone(s.Departed)
	c.Earlier = slices.Clone(s.Earlier)
	c.Uploads = slices.Clone(s.Uploads)
	c.RollbackGaps = slices.Clone(s.RollbackGaps)
	c.Trials = slices.Clone(s.Trials)
	c.Lost = slices.Clone(s.Lost)
	c.Marks = slices.Clone(s.Marks)
	return c
}

// CurrentRound returns the running round, or in Cooldown the last round of the epoch. It returns
// nil in every other RunState.
func (s *State) CurrentRound() *Round { return s.roundFromEnd(0) }

// RoundOfStep returns the round of a step, or nil if it is not among the stored rounds of the
// newest epoch. Rounds stay readable until the next Warmup starts.
func (s *State) RoundOfStep(step uint32) *Round {
	for i := range s.Epoch.Rounds {
		if s.Epoch.Rounds[i].Step == step {
			return &s.Epoch.Rounds[i]
		}
	}
	return nil
}

func (s *State) roundFromEnd(distance int) *Round {
	if !s.active() || distance >= len(s.Epoch.Rounds) {
		return nil
	}
	return &s.Epoch.Rounds[len(s.Epoch.Rounds)-1-distance]
}

func (s *State) active() bool {
	return s.RunState == RoundTrain || s.RunState == RoundWitness || s.RunState == Cooldown
}

// Member returns the client's entry in the running epoch. A client that is no longer Healthy keeps
// its entry until the round ends.
func (s *State) Member(id ClientID) (*Client, bool) {
	i := indexOf(s.Epoch.Clients, id)
	if i < 0 {
		return nil, false
	}
	return &s.Epoch.Clients[i], true
}

// IsPending reports whether the client is waiting for the next epoch.
func (s *State) IsPending(id ClientID) bool { return indexOf(s.Pending, id) >= 0 }

// TakesPart reports whether the host should publish the client's addresses: the client is a healthy
// member or pending, or it was in the last epoch of a Finished run. Clients of a Finished run are
// included because a client that was disconnected can still get the final model.
func (s *State) TakesPart(id ClientID) bool {
	if s.RunState == Finished && (indexOf(s.Epoch.Clients, id) >= 0 || indexOf(s.Epoch.Exited, id) >= 0) {
		return true
	}
	return s.isHealthy(id) || s.IsPending(id)
}

// HealthyCount returns the number of healthy members of the running epoch.
func (s *State) HealthyCount() int {
	count := 0
	for i := range s.Epoch.Clients {
		if s.Epoch.Clients[i].State == Healthy {
			count++
		}
	}
	return count
}

// Awaited returns the assignments whose results the current round waits for: the assignments of
// healthy members that are neither slow nor excused, or of all healthy members if there is no such member.
func (s *State) Awaited() (awaited []assign.Assignment) {
	round := s.CurrentRound()
	if round == nil {
		return nil
	}
	clients, punctual := lookup{clients: s.Epoch.Clients}, false
	for _, a := range round.Assignments(s.Config) {
		client := clients.find(round.Members[a.Member])
		if client == nil || client.State != Healthy {
			continue
		}
		awaits := round.awaits(a.Member, client)
		if awaits && !punctual {
			punctual, awaited = true, awaited[:0]
		}
		if awaits || !punctual {
			awaited = append(awaited, a)
		}
	}
	return awaited
}

func (s *State) isHealthy(id ClientID) bool {
	client, ok := s.Member(id)
	return ok && client.State == Healthy
}

func indexOf(clients []Client, id ClientID) int {
	return slices.IndexFunc(clients, func(c Client) bool { return c.ID == id })
}
