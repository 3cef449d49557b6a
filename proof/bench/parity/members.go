package main

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/data/local"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/proof/bench/momenta"
	"github.com/psyche-go/psyche/record/config"
)

// attack is the behaviour of a run's attackers. An attacker that does not need its gradient uses an
// honest member's gradient for the length of its fabricated one. An attacker with a momentum from
// an honest past keeps it.
type attack struct {
	momenta.Attack
	ownGradient, honestPast bool
	half, mute              bool // half of its batch is trained; nothing is sent
}

// attacks are the attacks that --attack can select.
var attacks = map[string]attack{
	"sign-flip":         {Attack: momenta.SignFlip, ownGradient: true},
	"noise":             {Attack: momenta.Noise},
	"negated-copy":      {Attack: momenta.NegatedCopy},
	"injection":         {Attack: momenta.Injection, ownGradient: true, honestPast: true},
	"bounded-injection": {Attack: momenta.BoundedInjection, ownGradient: true, honestPast: true},
	"lonely":            {Attack: momenta.LowSupport, ownGradient: true},
	"withheld":          {Attack: momenta.Withheld, ownGradient: true, mute: true},
	"half-batch":        {Attack: momenta.HalfBatch, ownGradient: true, half: true},
	"old-batch":         {Attack: momenta.OldBatch, ownGradient: true},
	"copy":              {Attack: momenta.Copy},
	"drift":             {Attack: momenta.Drift, ownGradient: true},
	"drift-sent":        {Attack: momenta.DriftSent, ownGradient: true},
	"stuffed":           {Attack: momenta.Stuffed, ownGradient: true},
	"stuffed-often":     {Attack: momenta.StuffedOften, ownGradient: true},
}

// members are the members of a run with one shared replica. Each has only its own momentum. The
// first of them attack in every step. With audits, members are audited, tried and ejected by the
// rules of a run (docs/protocol.md). Attackers do not audit, and as jurors acquit other attackers.
type members struct {
	command *runCommand
	text    *local.Folder
	trainer replica // weights, and all members' gradients
	cut     *momenta.Cutting
	attack  attack
	random  *rand.Rand
	update  [][]float32 // of the training member
	mean    [][]float32 // of the honest members' updates, over the newest steps
	members []*member
	trials  []trial
	court   court
}

// replica is a train.Trainer.
type replica interface {
	Shapes() audit.Shapes
	LR(ctx context.Context, step uint32) (float32, error)
	Recompute(ctx context.Context, x audit.Recomputation, batch data.Batch) (*audit.Reference, error)
	Apply(ctx context.Context, step uint32, payloads [][]byte, votes []uint8, ownCounted bool) error
	Evaluate(ctx context.Context, sequences [][]int32) (float64, error)
	Close() error
}

// member is a member of the run until it is ejected.
type member struct {
	number int
	state  *momenta.State
	honest *momenta.State // of an attacker: its state if it had always been honest
	spare  *momenta.State // the state before state
	first  uint32         // step of its first counted result
	old    [][]float32    // of an attacker: the update of its previous batch
}

// round is a step of its trainers.
type round struct {
	step       uint32
	trainers   []*member // in the order of their numbers
	batches    map[*member]assign.BatchID
	from       map[*member]*momenta.State   // their previous states
	references map[*member]*audit.Reference // of their batches, if already computed
}

// trial is the trial of a member that an auditor has accused in a step.
type trial struct {
	step, audited    uint32 // audited is the step of the result
	accused, accuser *member
}

// ejected describes the detection of a member: the step of the audited result, the step of the
// accusation, and the first step without a result of the member.
type ejected struct {
	Member               int
	First, Audited, Gone uint32
}

func newMembers(ctx context.Context, c *runCommand, o train.Options, text *local.Folder) (learner, error) {
	does, known := attacks[c.Attack]
	if !known && c.Attackers > 0 || c.Attackers >= c.Clients || c.ApplyLag != 1 || c.Lookahead {
		return nil, fmt.Errorf("attack %q, attackers %d of %d, apply-lag %d, lookahead %v: want a known attack, fewer attackers than clients, apply-lag 1, and no lookahead",
			c.Attack, c.Attackers, c.Clients, c.ApplyLag, c.Lookahead)
	}
	cut := momenta.Options{TopK: int(c.TopK), Edge: int(c.Chunk), Run: sha256.Sum256([]byte(o.RunID))}
	var trainer replica
	var err error
	if c.Optimizer == "local" {
		cut.Bits, cut.Decay = int(c.ValueBits), float32(c.ErrorDecay)
		o.Optimizer.LocalSteps = c.localSteps()
		trainer, err = train.NewLocal(ctx, o)
	} else {
		cut.Signs, cut.Decay = c.OneBit, float32(c.Momentum)
		o.Optimizer.Distro = &config.Distro{
			ClipGradNorm: c.Clip, WeightDecay: c.Decay, CompressionDecay: c.Momentum,
			CompressionTopK: c.TopK, CompressionChunk: c.Chunk, Quantize1Bit: c.OneBit,
		}
		trainer, err = train.New(ctx, o)
	}
	if err != nil {
		return nil, err
	}
	m := &members{command: c, text: text, trainer: trainer, attack: does, random: rand.New(rand.NewPCG(c.Seed, 1))}
	if m.cut, err = momenta.New(trainer.Shapes(), cut); err != nil {
		return nil, err
	}
	for i := range c.Clients {
		one := &member{number: int(i), state: m.cut.Begin()}
		if i < c.Attackers {
			one.honest = m.cut.Begin()
		}
		m.members = append(m.members, one)
	}
	return m, nil
}

// precision returns the type in which the run computes.
func (m *members) precision() audit.Precision {
	if m.command.Compute == "bf16" {
		return audit.BF16
	}
	return audit.F32
}

// seed returns the seed of a round.
func (m *members) seed(step uint32) uint64 {
	message := binary.LittleEndian.AppendUint64([]byte("round"), m.command.Seed)
	hash := sha256.Sum256(binary.LittleEndian.AppendUint32(message, step))
	return binary.LittleEndian.Uint64(hash[:])
}

func (m *members) step(ctx context.Context, step uint32, id assign.BatchID) (s stepped, err error) {
	rate, err := m.trainer.LR(ctx, step)
	if err != nil {
		return s, err
	}
	m.cut.Reach = float32(float64(rate) * float64(m.command.InnerSteps))
	round := m.begin(step, id)
	for _, one := range round.trainers {
		if one.honest == nil { // attackers send last
			if err := m.train(ctx, round, one); err != nil {
				return s, err
			}
		}
	}
	m.learn(round)
	if err := m.fake(ctx, round); err != nil {
		return s, err
	}
	payloads, err := m.payloads(round)
	if err != nil {
		return s, err
	}
	for _, p := range payloads {
		s.bytes += len(p) / len(payloads)
	}
	if m.command.Verification > 0 { // compute the outcomes of the next round's audits while the weights are available
		if err := m.judge(ctx, round); err != nil {
			return s, err
		}
		s.ejected = m.vote(step + 1)
		m.audit(step + 1)
	}
	return s, m.trainer.Apply(ctx, step, payloads, nil, false)
}

// begin draws the batch of each member.
func (m *members) begin(step uint32, id assign.BatchID) *round {
	r := &round{step: step, batches: map[*member]assign.BatchID{}, from: map[*member]*momenta.State{}, references: map[*member]*audit.Reference{}}
	for _, a := range assign.Batches(m.seed(step), len(m.members), m.command.Verification, id.Start, uint32(id.Len()), nil) {
		one := m.members[a.Member]
		r.trainers = append(r.trainers, one)
		r.batches[one] = a.Batch
	}
	slices.SortFunc(r.trainers, func(a, b *member) int { return a.number - b.number })
	return r
}

// payloads returns the results of a round in the order of their batches.
func (m *members) payloads(r *round) (all [][]byte, err error) {
	sorted := slices.SortedFunc(slices.Values(r.trainers), func(a, b *member) int { return cmp.Compare(r.batches[a].Start, r.batches[b].Start) })
	for _, one := range sorted {
		payload, err := m.cut.Payload(one.state, one.number, r.batches[one].Start, r.batches[one].End)
		if err != nil {
			return nil, err
		}
		all = append(all, payload)
	}
	return all, nil
}

// recompute computes the gradient of a member's batch, times the learning rate, for all chunks,
// once.
func (m *members) recompute(ctx context.Context, r *round, one *member) (*audit.Reference, error) {
	if r.references[one] != nil {
		return r.references[one], nil
	}
	reference, err := m.gradient(ctx, r.step, r.batches[one])
	r.references[one] = reference
	return reference, err
}

// gradient computes the gradient of a batch in a step.
func (m *members) gradient(ctx context.Context, step uint32, batch assign.BatchID) (*audit.Reference, error) {
	sequences, err := m.text.Sequences(ctx, batch)
	if err != nil {
		return nil, err
	}
	return m.trainer.Recompute(ctx, audit.Recomputation{
		Step: step, Weights: step - 1, Chunks: momenta.All(m.cut.Shapes), Precision: m.precision(),
	}, data.Batch{ID: batch, Sequences: sequences})
}

// train performs an honest member's step.
func (m *members) train(ctx context.Context, r *round, one *member) error {
	reference, err := m.recompute(ctx, r, one)
	if err != nil {
		return err
	}
	m.update = m.cut.Tensors(reference.Updates, m.update)
	return m.advance(r, one, m.update)
}

// learn updates the mean of the honest members' updates over about ten steps.
func (m *members) learn(r *round) {
	if m.command.Attackers == 0 {
		return
	}
	const kept = 0.9
	if m.mean == nil {
		m.mean = m.cut.Zeros()
	}
	for _, tensor := range m.mean {
		for i := range tensor {
			tensor[i] *= kept
		}
	}
	for _, one := range r.trainers {
		if one.honest != nil {
			continue
		}
		for i, tensor := range m.cut.Tensors(r.references[one].Updates, nil) {
			for j, v := range tensor {
				m.mean[i][j] += (1 - kept) * v
			}
		}
	}
}

// advance adds an update to a member's momentum, and removes the result from it.
func (m *members) advance(r *round, one *member, update [][]float32) (err error) {
	r.from[one] = one.state
	cut := *m.cut
	if one.honest != nil {
		cut.Loud, cut.Mute = !m.attack.honestPast, m.attack.mute
	}
	if one.state, err = cut.Advance(one.state, r.step, update, one.spare); err == nil && one.first == 0 {
		one.first = r.step
	}
	one.spare = r.from[one] // available once the round is judged
	return err
}

// fake performs the step of the attackers, which know the other members' results.
func (m *members) fake(ctx context.Context, r *round) error {
	var honest []*member
	for _, one := range r.trainers {
		if one.honest == nil {
			honest = append(honest, one)
		}
	}
	for i, one := range r.trainers {
		if one.honest == nil {
			continue
		}
		other := honest[i%len(honest)]
		reference, err := r.references[other], error(nil)
		if m.attack.ownGradient {
			reference, err = m.recompute(ctx, r, one)
		}
		if err != nil {
			return err
		}
		scene := &momenta.Scene{
			Cutting: m.cut, Random: m.random, Step: r.step, Own: one.state, Honest: one.honest,
			Update: m.cut.Tensors(reference.Updates, nil), Others: other.state.Taken, Old: one.old, Most: reference.Most,
			Mean: m.mean, Usual: reference.Usual, Longest: reference.Longest,
		}
		if one.old = scene.Update; scene.Old == nil {
			scene.Old = scene.Update
		}
		if m.attack.half {
			batch := r.batches[one]
			if batch.Len() < 2 {
				return fmt.Errorf("a batch of %d sequences cannot be halved; want at least 2 sequences", batch.Len())
			}
			half, err := m.gradient(ctx, r.step, assign.BatchID{Start: batch.Start, End: batch.Start + batch.Len()/2})
			if err != nil {
				return err
			}
			scene.Half = m.cut.Tensors(half.Updates, nil)
		}
		added := m.attack.Fake(scene)
		if m.attack.honestPast {
			if one.honest, err = m.cut.Advance(one.honest, r.step, scene.Update, nil); err != nil {
				return err
			}
		}
		if err := m.advance(r, one, added); err != nil {
			return err
		}
	}
	return nil
}

func (m *members) evaluate(ctx context.Context, sequences [][]int32) (float64, error) {
	return m.trainer.Evaluate(ctx, sequences)
}

// finish returns an error if the run ejected an honest member.
func (m *members) finish(context.Context) error {
	honest := 0
	for _, one := range m.members {
		if one.honest == nil {
			honest++
		}
	}
	if want := int(m.command.Clients - m.command.Attackers); honest != want {
		return fmt.Errorf("%d honest members at the end, want %d", honest, want)
	}
	return nil
}

func (m *members) close() error { return m.trainer.Close() }
