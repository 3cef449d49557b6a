package audits

import (
	"cmp"
	"slices"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/distro/codec"
)

const (
	// keptRounds are kept: an audit of step s−1 may be repeated until round s+8, and needs the
	// two rounds before that step.
	keptRounds = 12
	// keptHeads are kept of each trainer, however old: an opening is about three of them.
	keptHeads = 6
	// maxTrainers bounds of how many trainers heads are kept.
	maxTrainers = 2 * coordinator.MaxClients
)

// Head is what a result says of its trainer's momentum.
type Head struct {
	Step       uint32
	EpochStart uint32   // first step of its epoch
	Previous   uint32   // step of the result that the momentum goes on from; 0: it began as zeros
	Root       [32]byte // of the momentum after it
	Counted    bool
}

// HeadOf reads the head of a result of an epoch.
func HeadOf(payload []byte, epochStart uint32, counted bool) (Head, error) {
	h, err := codec.DecodeHeader(payload)
	return Head{Step: h.Step, EpochStart: epochStart, Previous: h.Previous, Root: h.Momentum, Counted: counted}, err
}

// Result is a result that is held.
type Result struct {
	Owner      coordinator.ClientID
	Batch      assign.BatchID
	Commitment [32]byte
	Size       uint32
	Head       Head
}

// Round is what is kept of a round whose outcome was applied.
type Round struct {
	Step       uint32
	EpochStart uint32
	Results    []Result // that are held, be they counted or not; in the order of batches
}

// Past has the newest rounds. It is used by one goroutine. Its zero value is empty.
type Past struct {
	// Limit is how many bytes of results are kept for rounds that are over, beside those of the
	// newest three; 0: without limit.
	Limit uint64

	rounds []Round // ascending
	heads  map[coordinator.ClientID][]Head
}

// leastRounds are kept whatever their size: what verifiers of the running round need.
const leastRounds = 3

// Add takes over a round that was applied. It returns the commitments of results that are not
// kept any more.
func (p *Past) Add(r Round) (dropped [][32]byte) {
	if n := len(p.rounds); n > 0 && p.rounds[n-1].Step+1 != r.Step {
		dropped = p.cut(n) // what is not without a gap cannot be taken back
	}
	p.rounds = append(p.rounds, r)
	for _, result := range r.Results {
		p.note(result.Owner, result.Head)
	}
	for len(p.rounds) > keptRounds || p.Limit > 0 && len(p.rounds) > leastRounds && p.size() > p.Limit {
		dropped = append(dropped, p.cut(1)...)
	}
	return dropped
}

// note adds a head of a trainer.
func (p *Past) note(trainer coordinator.ClientID, h Head) {
	if p.heads == nil {
		p.heads = make(map[coordinator.ClientID][]Head)
	}
	heads := slices.DeleteFunc(p.heads[trainer], func(old Head) bool { return old.Step >= h.Step }) // the run went back
	if len(heads) >= keptHeads {
		heads = slices.Delete(heads, 0, 1)
	}
	p.heads[trainer] = append(heads, h)
	if len(p.heads) > maxTrainers {
		p.forgetOldest()
	}
}

// forgetOldest forgets the trainer whose newest result is the oldest.
func (p *Past) forgetOldest() {
	var oldest coordinator.ClientID
	least := ^uint32(0)
	for trainer, heads := range p.heads {
		newest := heads[len(heads)-1].Step
		if newest < least || newest == least && slices.Compare(trainer[:], oldest[:]) < 0 {
			oldest, least = trainer, newest
		}
	}
	delete(p.heads, oldest)
}

func (p *Past) size() (bytes uint64) {
	for i := range p.rounds {
		for _, r := range p.rounds[i].Results {
			bytes += uint64(r.Size)
		}
	}
	return bytes
}

// cut forgets the oldest rounds.
func (p *Past) cut(count int) (dropped [][32]byte) {
	for _, round := range p.rounds[:count] {
		for _, r := range round.Results {
			dropped = append(dropped, r.Commitment)
		}
	}
	p.rounds = slices.Clone(p.rounds[count:])
	return dropped
}

// Shrink forgets all but the newest rounds, which verifiers need.
func (p *Past) Shrink() (dropped [][32]byte) { return p.cut(max(0, len(p.rounds)-leastRounds)) }

// Forget forgets everything: the model that follows does not go on from there.
func (p *Past) Forget() (dropped [][32]byte) {
	p.heads = nil
	return p.cut(len(p.rounds))
}

// EachBlob calls do for the commitment of each result that is kept.
func (p *Past) EachBlob(do func(hash [32]byte)) {
	for i := range p.rounds {
		for _, r := range p.rounds[i].Results {
			do(r.Commitment)
		}
	}
}

// Round returns a round that was applied.
func (p *Past) Round(step uint32) (Round, bool) {
	i, found := slices.BinarySearchFunc(p.rounds, step, func(r Round, step uint32) int { return cmp.Compare(r.Step, step) })
	if !found {
		return Round{}, false
	}
	return p.rounds[i], true
}

// Find returns the result of a member in a round that was applied.
func (p *Past) Find(step uint32, owner coordinator.ClientID) (Result, bool) {
	round, _ := p.Round(step)
	for _, r := range round.Results {
		if r.Owner == owner {
			return r, true
		}
	}
	return Result{}, false
}

// Heads returns those of a trainer's results before a step, newest first.
func (p *Past) Heads(trainer coordinator.ClientID, before uint32) []Head {
	var heads []Head
	for _, h := range p.heads[trainer] {
		if h.Step < before {
			heads = slices.Insert(heads, 0, h)
		}
	}
	return heads
}

// Since returns the rounds after a step until another one, newest first, or false when one of
// them is not kept.
func (p *Past) Since(after, until uint32) ([]Round, bool) {
	var rounds []Round
	for step := until; step > after; step-- {
		round, found := p.Round(step)
		if !found {
			return nil, false
		}
		rounds = append(rounds, round)
	}
	return rounds, true
}
