package dashtest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"github.com/psyche-go/psyche/base/hashchain"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/bloom"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash/history"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/journal"
	"github.com/psyche-go/psyche/record/wire"
)

// Options configure a run.
type Options struct {
	RunID          string
	Title          string // name of the run for people
	Name           string // display names of the first members, separated by commas
	Members        int
	Rounds         int // the run is finished after them
	RoundsPerEpoch int
	// Silent makes one member, each time a different one, send no result in every Silent-th round.
	// Zero disables it.
	Silent int
	// Hang is the number of a member that sends no results from the third round on and is dropped.
	// Zero means none. The first member is number 0.
	Hang int
	// Eject is the number of a member that is ejected in the fifth round. Zero means none.
	Eject int
	// Wrong is the number of a member that reports a different model at every epoch's end. Zero
	// means none.
	Wrong int
	// Audits is the percentage of members that do not train in a round and audit other members.
	Audits int
	// Cheat is the number of a member whose results fail every audit. A jury ejects it. Zero means
	// none.
	Cheat int
	// Slander is the number of a member that makes false accusations. A jury ejects it. Zero means
	// none.
	Slander int
	// Boast is the number of a member that claims a far lower loss than the other members. Zero
	// means none.
	Boast int
	// Late is the number of a member that joins in the third round. Zero means none.
	Late int
	// Probation is the number of steps in which results of new members do not count.
	Probation int
	// Hung disables the votes of jurors.
	Hung bool
	// Waits is the number of members that join before the log ends. Zero means that all join, and the run is played to
	// its end.
	Waits int

	chain bool // the run is on a chain and needs no openings of draws
}

// began is the start time of runs.
const began = 1_760_000_000_000

// Visit is called with an entry and the state after it.
type Visit func(history.Entry, *coordinator.State) error

// Key returns the key of a member. −1 is the host's key, which is also the main authority's.
func Key(member int) identity.Key {
	var seed [identity.SeedSize]byte
	binary.LittleEndian.PutUint64(seed[:], uint64(member+2))
	return identity.FromSeed(seed)
}

// player plays a run.
type player struct {
	o      Options
	state  coordinator.State
	ids    []coordinator.ClientID
	index  map[coordinator.ClientID]int
	nonces []uint64
	now    uint64
	number uint64
	visit  Visit
	draws  *hashchain.Chain
}

// Begin returns the starting state of a run.
func Begin(o Options) (coordinator.State, error) {
	if o.chain {
		genesis, err := chainGenesis(o)
		if err != nil {
			return coordinator.State{}, err
		}
		return genesis.State()
	}
	state, err := coordinator.New(o.RunID, id(-1), configOf(o), modelOf(o))
	state.DrawCommitment = draws(o).Commitment()
	return state, err
}

func configOf(o Options) coordinator.Config {
	return coordinator.Config{
		WarmupTime: 20_000, CooldownTime: 10_000, RoundsPerEpoch: uint32(o.RoundsPerEpoch), MaxRoundTrainTime: 8_000, RoundWitnessTime: 1_000,
		WaitingForMembersExtraTime: 3_000, GlobalBatchSizeStart: uint32(4 * o.Members), GlobalBatchSizeEnd: uint32(4 * o.Members),
		TotalSteps: uint32(o.Rounds), InitMinClients: uint16(max(1, o.Members/2)), MinClients: 1,
		VerificationPercent: uint8(o.Audits), EjectionEpochs: 3, ProbationSteps: uint32(o.Probation),
	}
}

func modelOf(o Options) coordinator.Model {
	definition, err := config.EncodeModel(config.Model{
		Name: o.Title, Architecture: config.HfLlama, DataType: config.Pretraining, MaxSeqLen: 2048,
		DataLocations: []config.DataLocation{{WeightedHTTP: &config.WeightedHTTPData{URL: "https://data.example/"}}},
		Checkpoint:    config.Checkpoint{Hub: &config.HubRepo{RepoID: "example/tiny-llama", Revision: "main"}},
		LRSchedule:    config.LRSchedule{Constant: &config.ConstantLR{BaseLR: 4e-4, WarmupSteps: 10}},
		Optimizer:     config.Optimizer{Distro: &config.Distro{CompressionDecay: 0.999, CompressionTopK: 8, CompressionChunk: 64, Quantize1Bit: true}},
	})
	if err != nil {
		panic(err)
	}
	return coordinator.Model{MaxSeqLen: 2048, Definition: definition, Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointHub, Repo: "example/tiny-llama", Revision: "main"}}
}

// draws returns the draws of the run's rounds.
func draws(o Options) *hashchain.Chain { return hashchain.New([32]byte{1}, o.Rounds+1) }

func id(member int) coordinator.ClientID { return coordinator.ClientID(Key(member).ID()) }

// Play plays a run to its end.
func Play(o Options, visit Visit) error {
	state, err := Begin(o)
	if err != nil {
		return err
	}
	p := &player{o: o, state: state, index: map[coordinator.ClientID]int{}, nonces: make([]uint64, o.Members+1), now: began, visit: visit, draws: draws(o)}
	for member := range o.Members {
		p.ids = append(p.ids, id(member))
		p.index[p.ids[member]] = member
	}
	if err := p.see(history.Entry{}); err != nil {
		return err
	}
	names := strings.Split(o.Name, ",")
	for member := range o.Members {
		join := coordinator.Join{}
		if member < len(names) {
			join.Name = names[member]
		}
		if o.Late > 0 && member == o.Late {
			continue
		}
		if o.Waits > 0 && member == o.Waits {
			return nil
		}
		if err := p.act(member, join); err != nil {
			return err
		}
	}
	for p.state.RunState != coordinator.Finished {
		if err := p.phase(); err != nil {
			return fmt.Errorf("step %d, %s: %w", p.state.Progress.Step, p.state.RunState, err)
		}
	}
	return nil
}

func (p *player) see(e history.Entry) error {
	e.Number = p.number
	p.number++
	return p.visit(e, &p.state)
}

// act submits an action of a member. It ignores refusals of late actions.
func (p *player) act(member int, a coordinator.Action) error {
	from := id(-1)
	if member >= 0 {
		from = p.ids[member]
	}
	p.nonces[member+1]++
	err := p.state.Apply(from, p.nonces[member+1], a)
	_, accuses := a.(coordinator.Accuse) // by now, the accusation may be refused: for any accused, or for this member
	if errors.Is(err, coordinator.ErrDuplicate) || errors.Is(err, coordinator.ErrNotMember) || accuses && errors.Is(err, coordinator.ErrNotElected) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s of member %d: %w", follow.ActionName(a), member, err)
	}
	return p.see(history.Entry{Actor: from, Action: a, Name: follow.ActionName(a)})
}

// tick advances the time until the phase ends.
func (p *player) tick(ms uint64) error {
	for before := p.state.RunState; p.state.RunState == before; ms = 500 {
		p.now += ms
		draw := drawAt(p.now)
		if !p.o.chain {
			draw, _, _ = p.draws.Opening(p.state.DrawCommitment)
		}
		if p.state.Tick(p.now, draw) {
			if err := p.see(history.Entry{Time: p.now}); err != nil {
				return err
			}
		}
	}
	return nil
}

// phase performs the members' actions in a phase, and ends it.
func (p *player) phase() error {
	s := &p.state
	switch s.RunState {
	case coordinator.Warmup:
		for i := range s.Epoch.Clients {
			if err := p.act(p.index[s.Epoch.Clients[i].ID], coordinator.Ready{Epoch: s.Progress.Epoch}); err != nil {
				return err
			}
		}
		return p.tick(2000)
	case coordinator.RoundTrain:
		if err := p.accuse(); err != nil {
			return err
		}
		if p.o.Eject > 0 && s.Progress.Step == 5 {
			if err := p.act(-1, coordinator.Eject{Client: p.ids[p.o.Eject]}); err != nil {
				return err
			}
		}
		if p.o.Late > 0 && s.Progress.Step == 3 {
			if err := p.act(p.o.Late, coordinator.Join{}); err != nil {
				return err
			}
		}
		if err := errors.Join(p.audit(), p.judge()); err != nil {
			return err
		}
		if err := p.witness(); err != nil {
			return err
		}
		return p.tick(1500 + uint64(s.SeedChain[0])*4)
	case coordinator.Cooldown:
		for i := range s.Epoch.Clients {
			member := p.index[s.Epoch.Clients[i].ID]
			digest := [32]byte{1, byte(s.Progress.Step), byte(s.Progress.Step >> 8)}
			if p.o.Wrong > 0 && member == p.o.Wrong {
				digest[0] = 0xbd
			}
			if p.hangs(member) || s.Epoch.Clients[i].State != coordinator.Healthy {
				continue
			}
			report := coordinator.ReportCheckpoint{Step: s.Progress.Step, Digest: digest, HeldOut: p.heldOut(member)}
			if err := p.act(member, report); err != nil {
				return err
			}
		}
		return p.tick(1000)
	default:
		return p.tick(500)
	}
}

func (p *player) hangs(member int) bool {
	return p.o.Hang > 0 && member == p.o.Hang && p.state.Progress.Step >= 3
}

// silent reports whether a member sends no result in the running round.
func (p *player) silent(member int) bool {
	step := int(p.state.Progress.Step)
	return p.hangs(member) || p.o.Silent > 0 && step%p.o.Silent == 0 && member == step/p.o.Silent%p.o.Members
}

// witness makes the elected members send their proofs.
func (p *player) witness() error {
	s := &p.state
	round := s.CurrentRound()
	keys := bloom.NewKeys(round.Seed)
	proof := coordinator.WitnessRound{Step: round.Step}
	for _, member := range round.Members {
		if !p.silent(p.index[member]) {
			proof.Participants.AddPositions(keys.Positions(member[:]))
		}
	}
	for _, elected := range round.ElectedWitnesses(s.Config) {
		member := p.index[round.Members[elected]]
		if p.silent(member) {
			continue
		}
		proof.Claim = p.claim(member)
		if err := p.act(member, proof); err != nil {
			return err
		}
	}
	return nil
}

// claim returns a member's claim about its training: a loss that decreases, and differs slightly
// between members.
func (p *player) claim(member int) coordinator.Claim {
	if p.o.Boast > 0 && member == p.o.Boast {
		return coordinator.Claim{Loss: 1, Speed: 1 << 30}
	}
	step := float64(p.state.Progress.Step)
	return coordinator.Claim{Loss: uint16(2600+3000*math.Exp(-step/20)) + uint16(member%5), Speed: 1000 + uint32(member)}
}

// heldOut returns a member's claim about the model at the end of an epoch: 0.1 more than its claim about
// its training. Members with odd numbers claim nothing.
func (p *player) heldOut(member int) uint16 {
	switch claim := p.claim(member); {
	case p.o.Boast > 0 && member == p.o.Boast:
		return claim.Loss
	case member%2 == 1:
		return 0
	default:
		return claim.Loss + 100
	}
}

// accuse makes a member report a trainer whose result the witnesses of the previous round lacked.
func (p *player) accuse() error {
	s := &p.state
	accused := s.Accusable()
	if len(accused) == 0 {
		return nil
	}
	for i := range s.Epoch.Clients {
		if c := &s.Epoch.Clients[i]; c.State == coordinator.Healthy && !p.silent(p.index[c.ID]) {
			return p.act(p.index[c.ID], coordinator.HealthCheck{Step: s.Progress.Step - 1, Clients: accused})
		}
	}
	return nil
}

// Write plays a run and writes its signed journal.
func Write(path string, o Options) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := out.Close(); err != nil {
		return err
	}
	j, _, err := journal.Open(path, func([]byte) error { return nil })
	if err != nil {
		return err
	}
	first, err := Begin(o)
	if err != nil {
		return errors.Join(err, j.Close())
	}
	keys := map[coordinator.ClientID]identity.Key{id(-1): Key(-1)}
	for member := range o.Members {
		keys[id(member)] = Key(member)
	}
	genesis, err := follow.NewGenesis(Key(-1), [32]byte{1}, &first)
	if err != nil {
		return errors.Join(err, j.Close())
	}
	nonces, committed := map[coordinator.ClientID]uint64{}, first.DrawCommitment
	err = Play(o, func(e history.Entry, s *coordinator.State) error {
		record := follow.Record{Kind: follow.KindTick, Now: e.Time}
		if s.DrawCommitment != committed {
			record.Draw, committed = s.DrawCommitment, s.DrawCommitment
		}
		switch {
		case e.Number == 0:
			record = follow.Record{Kind: follow.KindGenesis, Genesis: genesis}
		case e.Action != nil:
			nonces[e.Actor]++
			raw := wire.SignAction(keys[e.Actor], genesis.Run(), nonces[e.Actor], e.Action)
			record = follow.Record{Kind: follow.KindAction, Action: wire.SignedAction{Raw: raw}}
		}
		return j.Append(record.AppendTo(nil))
	})
	if err == nil {
		err = j.Commit()
	}
	return errors.Join(err, j.Close())
}
