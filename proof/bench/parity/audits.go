package main

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"math/rand/v2"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/proof/bench/momenta"
)

// court is the members' shared knowledge about results.
type court struct {
	rounds  [][]judged // the newest, oldest first
	of      []int      // per chunk: number of results of the previous round that sent something
	counted int        // results of the previous round
	random  *rand.Rand
}

// judged is a result with the outcome of an audit, which is the same for every auditor at any time.
type judged struct {
	step   uint32
	target *member
	guilty bool
}

const (
	auditRounds = 12 // rounds whose results are audited
	newRounds   = 2  // newest rounds, which get half of the audits
	maxJury     = 96
)

// judge computes the outcomes of future audits of a round's results while their weights are
// available. It audits all attackers, and one honest member, whose audit must pass.
func (m *members) judge(ctx context.Context, r *round) error {
	var all []judged
	sample := m.random.IntN(len(r.trainers))
	for i, one := range r.trainers {
		result := judged{step: r.step, target: one}
		if one.honest != nil || i == sample {
			var err error
			if result.guilty, err = m.finds(ctx, r, one); err != nil {
				return err
			}
		}
		all = append(all, result)
	}
	m.court.rounds = append(m.court.rounds, all)
	if len(m.court.rounds) > auditRounds {
		m.court.rounds = m.court.rounds[1:]
	}
	m.court.of, m.court.counted = make([]int, m.cut.Shapes.Chunks()), len(r.trainers)
	for _, one := range r.trainers {
		eachChunk(one.state.Taken, func(chunk int, count uint16) {
			if count > 0 {
				m.court.of[chunk]++
			}
		})
	}
	return nil
}

func eachChunk(result []codec.TensorResult, f func(chunk int, count uint16)) {
	chunk := 0
	for _, tensor := range result {
		for _, count := range tensor.Counts {
			f(chunk, count)
			chunk++
		}
	}
}

// finds reports whether an audit of a member's step fails.
func (m *members) finds(ctx context.Context, r *round, target *member) (bool, error) {
	reference, err := m.recompute(ctx, r, target)
	if err != nil {
		return false, err
	}
	var lowSupport []uint32
	if m.court.counted > 0 {
		eachChunk(target.state.Taken, func(chunk int, count uint16) {
			if count > 0 && 3*m.court.of[chunk] < m.court.counted {
				lowSupport = append(lowSupport, uint32(chunk))
			}
		})
	}
	trainer := momenta.Key(target.number)
	seed := sha256.Sum256(binary.LittleEndian.AppendUint64([]byte("audit"), m.seed(r.step)))
	chunks := audit.Chunks(seed, r.step, trainer, m.cut.Shapes, audit.DefaultChunks, lowSupport)
	claim, err := m.cut.Claim(r.from[target], target.state, trainer, chunks)
	if err != nil {
		return false, err
	}
	drawn := momenta.Reference(reference, trainer, chunks).Wider()
	return drawn.Check(claim).Judge(drawn.Limits) != audit.Passed, nil
}

// audit makes each member that does not train in a round audit one result. It draws the result
// privately, and in half of the cases from the newest two rounds.
func (m *members) audit(step uint32) {
	if m.court.random == nil {
		m.court.random = rand.New(rand.NewPCG(m.command.Seed, 2))
	}
	trainers := assign.Trainers(m.seed(step), len(m.members), m.command.Verification)
	for position, auditor := range m.members {
		if auditor.honest != nil || slices.Contains(trainers, position) {
			continue
		}
		rounds := m.court.rounds
		if m.court.random.IntN(2) == 0 {
			rounds = rounds[max(0, len(rounds)-newRounds):]
		}
		var all []judged
		for _, results := range rounds {
			for _, one := range results {
				if one.target != auditor && slices.Contains(m.members, one.target) {
					all = append(all, one)
				}
			}
		}
		if len(all) == 0 {
			continue
		}
		if one := all[m.court.random.IntN(len(all))]; one.guilty && !m.onTrial(one.target) {
			m.trials = append(m.trials, trial{step: step, audited: one.step, accused: one.target, accuser: auditor})
		}
	}
}

func (m *members) onTrial(one *member) bool {
	return slices.ContainsFunc(m.trials, func(t trial) bool { return t.accused == one })
}

// vote makes juries vote on the members accused in the previous step, and ejects the guilty ones at
// the end of that step. A jury repeats the audit, and honest jurors get the auditor's outcome.
func (m *members) vote(step uint32) (gone []ejected) {
	remaining := m.trials[:0]
	for _, t := range m.trials {
		if step < t.step+2 {
			remaining = append(remaining, t)
			continue
		}
		jurors, guilty := 0, 0
		for _, position := range assign.Jury(m.seed(t.step+1), len(m.members)) {
			juror := m.members[position]
			if juror == t.accused || juror == t.accuser || jurors == maxJury {
				continue
			}
			jurors++
			if juror.honest == nil {
				guilty++
			}
		}
		if jurors < 2 || 20*guilty < 11*jurors {
			continue // no majority: no ejection
		}
		gone = append(gone, ejected{Member: t.accused.number, First: t.accused.first, Audited: t.audited, Gone: step})
		m.members = slices.DeleteFunc(m.members, func(one *member) bool { return one == t.accused })
	}
	m.trials = remaining
	return gone
}
