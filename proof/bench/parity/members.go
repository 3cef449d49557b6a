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

// attack is what attackers of a run do. One that has no need of its own gradient takes another's for the
// length of what it makes up; one that has a momentum of its honest past keeps it.
type attack struct {
	momenta.Attack
	ownGradient, honestPast bool
	half, mute              bool // half of its batch is trained; nothing is sent
}

// attacks are those that --attack names.
var attacks = map[string]attack{
	"sign-flip":         {Attack: momenta.SignFlip, ownGradient: true},
	"noise":             {Attack: momenta.Noise},
	"negated-copy":      {Attack: momenta.NegatedCopy},
	"injection":         {Attack: momenta.Injection, ownGradient: true, honestPast: true},
	"bounded-injection": {Attack: momenta.BoundedInjection, ownGradient: true, honestPast: true},
	"lonely":            {Attack: momenta.Lonely, ownGradient: true},
	"withheld":          {Attack: momenta.Withheld, ownGradient: true, mute: true},
	"half-batch":        {Attack: momenta.HalfBatch, ownGradient: true, half: true},
	"old-batch":         {Attack: momenta.OldBatch, ownGradient: true},
	"copy":              {Attack: momenta.Copy},
	"drift":             {Attack: momenta.Drift, ownGradient: true},
	"drift-sent":        {Attack: momenta.DriftSent, ownGradient: true},
	"stuffed":           {Attack: momenta.Stuffed, ownGradient: true},
	"stuffed-often":     {Attack: momenta.StuffedOften, ownGradient: true},
}

// members are those of a run that share one replica: what they know alone is their momentum. The first
// of them attack, in every step. With audits members are audited, tried and ejected by the rules of a
// run (docs/protocol.md); attackers audit nobody, and acquit their like as jurors.
type members struct {
	command *runCommand
	text    *local.Folder
	trainer replica // weights, and everybody's gradients
	cut     *momenta.Cutting
	attack  attack
	random  *rand.Rand
	update  [][]float32 // of whoever trains
	mean    [][]float32 // of the updates of the honest, over the newest steps
	members []*member
	trials  []trial
	court   court
}

// replica is a train.Trainer, or a train.LocalTrainer.
type replica interface {
	Shapes() audit.Shapes
	LR(ctx context.Context, step uint32) (float32, error)
	Recompute(ctx context.Context, x audit.Recomputation, batch data.Batch) (*audit.Reference, error)
	Apply(ctx context.Context, step uint32, payloads [][]byte, ownCounted bool) error
	Evaluate(ctx context.Context, sequences [][]int32) (float64, error)
	Close() error
}

// member is a member of the run while it is not ejected.
type member struct {
	number int
	state  *momenta.State
	honest *momenta.State // of an attacker: its state if it had always been honest
	spare  *momenta.State // the one before state
	first  uint32         // step of its first result that counted
	old    [][]float32    // of an attacker: the update of its batch before
}

// round is a step of those who train in it.
type round struct {
	step       uint32
	trainers   []*member // in the order of their numbers
	batches    map[*member]assign.BatchID
	from       map[*member]*momenta.State   // what they went on from
	references map[*member]*audit.Reference // of their batches, as far as somebody computed the gradient
}

// trial is of a member that an auditor has accused in a step.
type trial struct {
	step, audited    uint32 // audited is that of the result
	accused, accuser *member
}

// ejected says of a member when it was found out: the step of the result that was audited, the step in
// which it was accused, and the first one that it has no result in.
type ejected struct {
	Member               int
	First, Audited, Gone uint32
}

func newMembers(ctx context.Context, c *runCommand, o train.Options, text *local.Folder) (learner, error) {
	does, known := attacks[c.Attack]
	if !known && c.Attackers > 0 || c.Attackers >= c.Clients || c.ApplyLag != 1 || c.Lookahead {
		return nil, fmt.Errorf("attack %q, attackers %d of %d, apply-lag %d, lookahead %v: want an attack, fewer attackers than clients, lag 1, no lookahead",
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

// precision is the type that the run computes in.
func (m *members) precision() audit.Precision {
	if m.command.Compute == "bf16" {
		return audit.BF16
	}
	return audit.F32
}

// seed is a round's.
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
	if m.command.Verification > 0 { // what happens in the next round, while the weights are there
		if err := m.judge(ctx, round); err != nil {
			return s, err
		}
		s.ejected = m.vote(step + 1)
		m.audit(step + 1)
	}
	return s, m.trainer.Apply(ctx, step, payloads, false)
}

// begin draws the batch of each member.
func (m *members) begin(step uint32, id assign.BatchID) *round {
	r := &round{step: step, batches: map[*member]assign.BatchID{}, from: map[*member]*momenta.State{}, references: map[*member]*audit.Reference{}}
	for _, a := range assign.Batches(m.seed(step), len(m.members), m.command.Verification, id.Start, uint32(id.Len())) {
		one := m.members[a.Member]
		r.trainers = append(r.trainers, one)
		r.batches[one] = a.Batch
	}
	slices.SortFunc(r.trainers, func(a, b *member) int { return a.number - b.number })
	return r
}

// payloads are the results of a round in the order of their batches.
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

// recompute computes the gradient of a member's batch, times the learning rate, of all chunks, once.
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

// train takes an honest member's step.
func (m *members) train(ctx context.Context, r *round, one *member) error {
	reference, err := m.recompute(ctx, r, one)
	if err != nil {
		return err
	}
	m.update = m.cut.Tensors(reference.Updates, m.update)
	return m.advance(r, one, m.update)
}

// learn makes the mean of the updates of the honest that of ten steps or so.
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

// advance adds an update to a member's momentum, and takes its result out of it.
func (m *members) advance(r *round, one *member, update [][]float32) (err error) {
	r.from[one] = one.state
	cut := *m.cut
	if one.honest != nil {
		cut.Loud, cut.Mute = !m.attack.honestPast, m.attack.mute
	}
	if one.state, err = cut.Advance(one.state, r.step, update, one.spare); err == nil && one.first == 0 {
		one.first = r.step
	}
	one.spare = r.from[one] // once the round is judged
	return err
}

// fake takes the step of the attackers, who know what the others sent.
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
				return fmt.Errorf("a batch of %d sequences has no half", batch.Len())
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

// finish finds that the run ejected no honest member.
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
