package check

import (
	"bytes"
	"slices"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/bloom"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/core/merkle"
	"github.com/psyche-go/psyche/proof/sim/cast"
	"github.com/psyche-go/psyche/proof/sim/model"
	"github.com/psyche-go/psyche/proof/sim/signatures"
)

// chain is the expected model after every step. The Checker computes it from the witnesses' proofs
// and from all announcements ever made, which no client knows.
type chain struct {
	checker *Checker
	models  map[[32]byte]model.Model // possible starting models of epochs, by digest
	steps   map[uint32]link
	starts  map[uint32]start                   // by an epoch's first step
	skipped map[uint32]map[assign.BatchID]bool // by step: batches whose results do not count
}

// start is the starting model of an epoch. The last round of the previous epoch has its own link,
// because a disconnected client may apply it after the next epoch has started.
type start struct {
	model model.Model
	known bool
}

// link is the outcome of one round.
type link struct {
	decided bool // otherwise the outcome cannot be known, and must not be applied
	counted [][]byte
	votes   []uint8 // of the counted results
	batches []assign.BatchID
	model   model.Model        // after the step
	known   bool               // model is known
	round   *coordinator.Round // set if it is not decided
	slots   []assign.Assignment
	root    [32]byte
}

// add adds a counted result.
func (l *link) add(payload []byte, a assign.Assignment) {
	l.counted, l.votes, l.batches = append(l.counted, payload), append(l.votes, a.Vote), append(l.batches, a.Batch)
}

func newChain(c *Checker) chain {
	return chain{checker: c, models: make(map[[32]byte]model.Model), steps: make(map[uint32]link), starts: make(map[uint32]start), skipped: make(map[uint32]map[assign.BatchID]bool)}
}

// begin records the starting model of an epoch.
func (c *chain) begin(s *coordinator.State) {
	begin := start{model: model.Initial(), known: true}
	if s.Model.Checkpoint.Origin != 0 {
		begin.model, begin.known = c.models[s.Model.Checkpoint.Digest]
	}
	c.starts[s.Epoch.StartStep] = begin
}

// before returns the model before a step is applied to it.
func (c *chain) before(step uint32) start {
	if begin, first := c.starts[step]; first {
		return begin
	}
	l := c.steps[step-1]
	return start{l.model, l.known}
}

// trainedFrom returns the model from which the results of a step must be made: the model at the
// start of its round, including all results at an epoch's start.
func (c *chain) trainedFrom(step uint32) start {
	for range c.checker.run.Plan.ApplyLag - 1 {
		if _, first := c.starts[step]; first {
			break
		}
		step--
	}
	return c.before(step)
}

// compareTrained checks the models from which honest trainers made the counted results of a step.
func (c *chain) compareTrained(step uint32, payloads [][]byte) {
	from := c.trainedFrom(step)
	if !from.known {
		return
	}
	for _, payload := range payloads {
		_, batch, trainer := model.ReadHeader(payload)
		m := c.checker.run.Cast.Find(trainer)
		if m != nil && m.Honest() && !bytes.Equal(payload[:model.ResultSize], model.NewResult(&from.model, step, batch, trainer, 0)) {
			c.checker.Violate(TrainedRight, "%s computed its result of step %d from the wrong model", m.Name(), step)
		}
	}
}

// extend computes the outcome of a finished round.
func (c *chain) extend(round *coordinator.Round, config coordinator.Config) {
	l := c.decide(round, config)
	before := c.before(round.Step)
	if l.decided && before.known {
		l.known, l.model = true, before.model
		if again := l.model.Apply(round.Step, l.counted, l.votes); again != nil {
			c.checker.Violate(OnceOnly, "batch %v of step %d counts a second time", *again, round.Step)
		}
		c.models[l.model.Digest(round.Step)] = l.model
	}
	c.steps[round.Step] = l
}

// digest returns the digest of the model after a step.
func (c *chain) digest(step uint32) (digest [32]byte, known bool) {
	l := c.steps[step]
	if !l.known {
		return digest, false
	}
	return l.model.Digest(step), true
}

// decide counts the votes of a finished round. It knows all results of all assignees, and shares no
// code with package client.
func (c *chain) decide(round *coordinator.Round, config coordinator.Config) link {
	quorum := QuorumOf(electedOf(round, config))
	if len(round.Witnesses) < quorum {
		return link{decided: true}
	}
	roots := make(map[[32]byte]int)
	var root [32]byte
	agreed := false
	for i := range round.Witnesses {
		r := round.Witnesses[i].CommitmentsRoot
		if roots[r]++; roots[r] >= quorum {
			root, agreed = r, true
		}
	}
	for _, threshold := range []int{quorum, 1} {
		l, leaves := c.elect(round, config, threshold)
		if !agreed || merkle.Root(leaves) == root {
			l.decided = true
			return l
		}
	}
	kept := *round // the state reuses the memory
	return link{round: &kept, slots: round.Assignments(config), root: root}
}

// adopt records a client's outcome of a round that the Checker could not decide. The results have
// the root that a quorum of the witnesses signed, so the outcome is unique.
func (c *chain) adopt(l *link, step uint32, payloads [][]byte) bool {
	leaves, tries := make([][32]byte, len(l.slots)), 10_000
	for i, a := range l.slots {
		if c.skipped[step][a.Batch] {
			continue
		}
		for _, s := range c.heard(step, a.Batch, identity.ID(l.round.Members[a.Member])) {
			if len(payloads) > 0 && bytes.Equal(payloads[0], s.Payload) {
				leaves[i] = s.Announcement.Blob
				l.add(s.Payload, a)
				payloads = payloads[1:]
				break
			}
		}
	}
	l.decided = len(payloads) == 0 && c.completes(l, step, leaves, 0, &tries)
	if before := c.before(step); l.decided && before.known {
		l.known, l.model = true, before.model
		l.model.Apply(step, l.counted, l.votes)
		c.models[l.model.Digest(step)] = l.model
	}
	return l.decided
}

// completes reports whether the leaves, completed with skipped results, have the root. Skipped
// results are in the tree, but are not applied, so the leaves of their slots are unknown. completes
// tries the results of each such slot from slot on, which are a few. tries limits the tested roots.
func (c *chain) completes(l *link, step uint32, leaves [][32]byte, slot int, tries *int) bool {
	for ; slot < len(l.slots); slot++ {
		a := l.slots[slot]
		if !c.skipped[step][a.Batch] {
			continue
		}
		for _, s := range c.heard(step, a.Batch, identity.ID(l.round.Members[a.Member])) {
			leaves[slot] = s.Announcement.Blob
			if c.completes(l, step, leaves, slot+1, tries) {
				return true
			}
		}
		leaves[slot] = [32]byte{}
	}
	*tries--
	return *tries >= 0 && merkle.Root(leaves) == l.root
}

// elect returns the results with the most votes and at least a threshold.
func (c *chain) elect(round *coordinator.Round, config coordinator.Config, threshold int) (link, [][32]byte) {
	var l link
	assignments, keys := round.Assignments(config), bloom.NewKeys(round.Seed)
	c.checker.checkVotes(round, config, assignments)
	leaves := make([][32]byte, len(assignments))
	for i, a := range assignments {
		best, owner := 0, round.Members[a.Member]
		var payload []byte
		for _, s := range c.heard(round.Step, a.Batch, identity.ID(round.Members[a.Member])) {
			blob := s.Announcement.Blob
			votes, bits := 0, keys.Positions(blob[:])
			for j := range round.Witnesses {
				if w := &round.Witnesses[j]; w.Participants.Contains(round.Seed, owner[:]) && w.Commitments.ContainsPositions(bits) {
					votes++
				}
			}
			if votes < threshold || votes < best || votes == 0 {
				continue
			}
			if votes > best || bytes.Compare(blob[:], leaves[i][:]) < 0 {
				best, leaves[i], payload = votes, blob, s.Payload
			}
		}
		if payload != nil && !c.skipped[round.Step][a.Batch] {
			l.add(payload, a)
		}
	}
	return l, leaves
}

// compare checks the results that an honest client applied.
func (c *chain) compare(m *cast.Member, step uint32, payloads [][]byte, weights *model.Model) {
	check := c.checker
	l, finished := c.steps[step]
	if !finished {
		check.Violate(CountedRight, "%s applies step %d, which is not over", m.Name(), step)
		return
	}
	if !l.decided && c.adopt(&l, step, payloads) {
		c.steps[step] = l
	}
	if !l.decided {
		check.Violate(CountedRight, "%s applies step %d, whose outcome is undecided", m.Name(), step)
		return
	}
	for i, payload := range payloads {
		if i >= len(l.counted) || !bytes.Equal(payload, l.counted[i]) {
			_, batch, _ := model.ReadHeader(payload)
			check.Violate(CountedRight, "%s applies a result of batch %v in step %d that does not count", m.Name(), batch, step)
			return
		}
	}
	if len(payloads) < len(l.counted) {
		check.Violate(CountedRight, "%s omits batch %v of step %d", m.Name(), l.batches[len(payloads)], step)
	}
	c.compareTrained(step, payloads)
	if l.known && *weights != l.model {
		check.Violate(SameReplica, "the weights of %s after step %d differ from the weights with the counted results", m.Name(), step)
	}
}

// heard returns the statements of a batch's owner that count in this history.
func (c *chain) heard(step uint32, batch assign.BatchID, owner identity.ID) []signatures.Statement {
	all := c.checker.run.Registry.Of(step, batch, owner)
	if !c.checker.run.Forked() {
		return all
	}
	start := c.checker.host.Start(step)
	return slices.DeleteFunc(all, func(s signatures.Statement) bool { return s.Announcement.Start != start })
}
