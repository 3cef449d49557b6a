package auditor

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/core/coordinator"
)

const (
	// drawnRounds is the number of newest rounds from which results are drawn.
	drawnRounds = 12
	// leastKept is the minimum number of kept rounds. Rounds applied in the last keptTime are also
	// kept. Both are longer than results are drawn: an auditor asks a silent trainer for a minute
	// before it accuses the trainer, and jurors need the round after that.
	leastKept = 24
	keptTime  = 150 * time.Second
	// mostKept is the maximum number of rounds that are kept for slow auditors.
	mostKept = 2 * leastKept
	// behind is the number of earlier rounds that an auditor must know to recompute a result. They
	// are the rounds between the model that the result was trained from and the result, and the
	// round that determines which chunks of the result are opened.
	behind = 3
	// maxTrainers is the maximum number of trainers whose newest result is kept permanently.
	maxTrainers = 2 * coordinator.MaxClients
)

// keptRounds returns the minimum number of kept rounds. With shares by speed, an auditor may need several rounds in which
// it does not train. The rounds after the draw contain four of them on average.
func keptRounds(c coordinator.Config) int {
	if !c.SharesBySpeed || c.VerificationPercent == 0 {
		return leastKept
	}
	return min(max(400/int(c.VerificationPercent)+8, leastKept), mostKept)
}

// attestedResult is a result that a quorum of witnesses holds, whether it was applied or not.
type attestedResult struct {
	Owner      coordinator.ClientID
	Batch      assign.BatchID
	Commitment [32]byte
	Header     codec.Header // only the step is set if the result was not available
	Counted    bool         // it was applied
	Vote       uint8        // its weight when it was applied
	Announced  string       // signed bytes of its announcement; empty: unknown
	Since      uint32       // first step of its trainer's optimizer, as the run knew it when the round started; 0: unknown
}

// read reports whether this client has read the result itself.
func (r *attestedResult) read() bool { return r.Header.Momentum != [32]byte{} }

// appliedRound is the record of an applied round.
type appliedRound struct {
	Step       uint32
	EpochStart uint32
	ColdSteps  uint32                 // length of its epoch's cold start
	At         time.Time              // time when this client applied it
	Results    []attestedResult       // attested results, in the order of batches
	Unknown    []coordinator.ClientID // trainers whose attested results were never announced to this client
	Senders    *senderCounts
	Data       coordinator.Round // only its fields that Round.Sequences needs
}

// counted returns the results that were applied.
func (r *appliedRound) counted() []attestedResult {
	return slices.DeleteFunc(slices.Clone(r.Results), func(r attestedResult) bool { return !r.Counted })
}

// past contains the newest rounds, and the newest result of each trainer. Its zero value is empty.
type past struct {
	rounds []appliedRound // ascending, without a gap
	since  uint32         // this client has known every round since this step
	newest map[coordinator.ClientID]attestedResult
	// unknown contains, for a trainer, the newest step in which the trainer has an attested result that
	// this client does not know. Later results of the trainer may continue from that result.
	unknown map[coordinator.ClientID]uint32
}

// Add adds a round that was applied, and returns the hashes of the results that are no longer kept. It
// keeps at least the given number of rounds, and all that are required to audit results of the step needed or later.
func (p *past) Add(r appliedRound, needed uint32, kept int) (dropped [][32]byte) {
	if n := len(p.rounds); n == 0 || p.rounds[n-1].Step+1 != r.Step {
		dropped = p.cut(n) // rounds before a gap are of no use
		p.since = r.Step
	}
	p.rounds = append(p.rounds, r)
	p.noteUnknown(r)
	old := 0
	for old+kept < len(p.rounds) && r.At.Sub(p.rounds[old].At) > keptTime && p.rounds[old].Step+behind < needed {
		old++
	}
	return append(dropped, p.cut(old)...)
}

// noteUnknown records the trainers whose attested results in a round are unknown.
func (p *past) noteUnknown(r appliedRound) {
	if p.unknown == nil || len(p.unknown)+len(r.Unknown) > maxTrainers {
		p.unknown = make(map[coordinator.ClientID]uint32)
		p.since = r.Step // of the trainers just forgotten, earlier results may be unknown
	}
	for _, trainer := range r.Unknown {
		p.unknown[trainer] = r.Step
	}
}

// cut drops the oldest rounds, but keeps the newest result of each trainer.
func (p *past) cut(count int) (dropped [][32]byte) {
	if p.newest == nil {
		p.newest = make(map[coordinator.ClientID]attestedResult)
	}
	for _, round := range p.rounds[:count] {
		for _, r := range round.Results {
			p.newest[r.Owner] = r
			dropped = append(dropped, r.Commitment)
		}
	}
	for len(p.newest) > maxTrainers {
		delete(p.newest, p.longestAway())
	}
	p.rounds = slices.Clone(p.rounds[count:])
	return dropped
}

// longestAway returns the trainer whose newest result is the oldest.
func (p *past) longestAway() (oldest coordinator.ClientID) {
	minimum := ^uint32(0)
	for trainer, r := range p.newest {
		if r.Header.Step < minimum || r.Header.Step == minimum && slices.Compare(trainer[:], oldest[:]) < 0 {
			oldest, minimum = trainer, r.Header.Step
		}
	}
	return oldest
}

// forget drops all rounds, because the next model does not continue from them.
func (p *past) forget() (dropped [][32]byte) { return p.cut(len(p.rounds)) }

// round returns a round that was applied.
func (p *past) round(step uint32) (*appliedRound, bool) {
	i, found := slices.BinarySearchFunc(p.rounds, step, func(r appliedRound, step uint32) int { return cmp.Compare(r.Step, step) })
	if !found {
		return nil, false
	}
	return &p.rounds[i], true
}

// Rounds returns the newest rounds, at most count, oldest first.
func (p *past) Rounds(count int) []appliedRound { return p.rounds[max(0, len(p.rounds)-count):] }

// Since returns the rounds after one step and up to another, newest first. It reports false if one of
// them is not kept.
func (p *past) Since(after, until uint32) ([]appliedRound, bool) {
	var rounds []appliedRound
	for step := until; step > after; step-- {
		round, found := p.round(step)
		if !found {
			return nil, false
		}
		rounds = append(rounds, *round)
	}
	return rounds, true
}

// find returns the attested result of a member in a round that was applied.
func (p *past) find(step uint32, owner coordinator.ClientID) (attestedResult, bool) {
	if round, found := p.round(step); found {
		for _, r := range round.Results {
			if r.Owner == owner {
				return r, true
			}
		}
	}
	return attestedResult{}, false
}

// before returns the newest attested result of a trainer before a step that this client knows, or the zero
// value.
func (p *past) before(trainer coordinator.ClientID, step uint32) attestedResult {
	for _, round := range slices.Backward(p.rounds) {
		if r, found := p.find(round.Step, trainer); found && round.Step < step {
			return r
		}
	}
	if r := p.newest[trainer]; r.Header.Step < step {
		return r
	}
	return attestedResult{}
}

// lineage reports whether a momentum continues from an allowed result.
type lineage uint8

// Results of checking a lineage.
const (
	lineageUnknown lineage = iota
	lineageAllowed
	lineageBroken // it continues from a result that is not attested, or skips an attested result
)

// previous checks which momentum a result continues from. Allowed is the momentum of its trainer's
// newest attested result, whose root Previous then returns. If the run knows that the trainer's optimizer
// started after that result, a momentum of zero is allowed too. Previous uses what the run knew when
// the round of the result started. Later knowledge of the run depends on the time at which a member
// looks: a jury that used it might eject an accuser that was right.
func (p *past) previous(r *attestedResult) (root [32]byte, history lineage) {
	said, newest := r.Header.Previous, p.before(r.Owner, r.Header.Step)
	at := newest.Header.Step // 0: none
	switch {
	case said != 0 && said == at && newest.read():
		return newest.Header.Momentum, lineageAllowed
	case said != 0 && said == at:
		return root, lineageUnknown
	case said > at && p.unknown[r.Owner] > at:
		return root, lineageUnknown
	case said != 0 && (said < at || said >= p.since):
		return root, lineageBroken
	case said != 0:
		return root, lineageUnknown
	case r.Since == 0 || r.Since > r.Header.Step:
		return root, lineageUnknown
	case at > r.Since:
		return root, lineageBroken
	case at < p.since && r.Since < p.since: // the trainer may have later results that this client does not know
		return root, lineageUnknown
	}
	return root, lineageAllowed
}

// senderCounts contains, for each chunk, the number of a round's counted results that sent
// something in it. It is computed on first use, and again if a result could not be read.
type senderCounts struct {
	decode  func(payload []byte) (codec.Header, []codec.TensorResult, error)
	read    func(commitment [32]byte) ([]byte, error)
	counted [][32]byte

	mu sync.Mutex
	of []uint16
}

// count computes the number of senders of each chunk.
func (s *senderCounts) count() ([]uint16, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.of != nil {
		return s.of, nil
	}
	var of []uint16
	for _, commitment := range s.counted {
		payload, err := s.read(commitment)
		if err != nil {
			return nil, err
		}
		_, result, err := s.decode(payload)
		if err != nil {
			return nil, err
		}
		for chunk, count := range sentOf(result) {
			if chunk == len(of) {
				of = append(of, 0)
			}
			if count > 0 {
				of[chunk]++
			}
		}
	}
	s.of = of
	return of, nil
}

// sentOf returns the number of coefficients that a result has in each chunk of the model.
func sentOf(result []codec.TensorResult) (counts []uint16) {
	for _, tensor := range result {
		counts = append(counts, tensor.Counts...)
	}
	return counts
}

// drawn returns the chunks of a result to open, drawn by the seed. A nil s represents the round
// before an epoch's first, in which no member sent anything.
func (s *senderCounts) drawn(seed [32]byte, of resultID, shapes audit.Shapes, result []codec.TensorResult) ([]uint32, error) {
	var lowSupport []uint32
	if s != nil {
		var err error
		if lowSupport, err = s.lowSupport(result); err != nil {
			return nil, err
		}
	}
	return audit.Chunks(seed, of.Step, of.Trainer, shapes, audit.DefaultChunks, lowSupport), nil
}

// lowSupport returns the chunks in which a result sent something, but fewer than a third of the
// counted results did.
func (s *senderCounts) lowSupport(result []codec.TensorResult) ([]uint32, error) {
	of, err := s.count()
	if err != nil {
		return nil, err
	}
	var lowSupport []uint32
	for chunk, count := range sentOf(result) {
		if count > 0 && chunk < len(of) && 3*int(of[chunk]) < len(s.counted) {
			lowSupport = append(lowSupport, uint32(chunk))
		}
	}
	return lowSupport, nil
}
