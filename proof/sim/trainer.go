package sim

import (
	"context"
	"errors"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/proof/sim/check"
	"github.com/psyche-go/psyche/proof/sim/model"
	"github.com/psyche-go/psyche/proof/sim/scenario"
)

var (
	errSilent = errors.New("this trainer trains nothing")
	errNoData = errors.New("no data server answers")
)

// trainer implements env.Trainer for one process.
type trainer struct {
	process *process
	model   model.Model
	step    uint32 // last applied step; 0: loaded since

	speculation *speculation // nil: the model contains only applied results

	from, takes int64 // start and duration of the running training, if rules determine it
	sequences   int
}

// speculation is a speculative change of the model.
type speculation struct {
	step     uint32
	payloads [][]byte
	before   model.Model
	again    *assign.BatchID
}

// takeBack reverts a speculation.
func (t *trainer) takeBack() {
	if t.speculation != nil && !t.process.world.rules.keeps {
		t.model = t.speculation.before
	}
	t.speculation = nil
}

// applied returns the model without speculative results.
func (t *trainer) applied() *model.Model {
	if t.speculation != nil {
		return &t.speculation.before
	}
	return &t.model
}

// Speculate implements env.Speculator.
func (t *trainer) Speculate(_ context.Context, step uint32, payloads [][]byte, votes []uint8, _ bool) (bool, error) {
	t.takeBack()
	before := t.model
	payloads, again, err := t.move(step, payloads, votes)
	if err != nil {
		return false, err
	}
	t.speculation = &speculation{step, payloads, before, again}
	return true, nil
}

// Confirm implements env.Speculator.
func (t *trainer) Confirm(step uint32) bool {
	f := t.speculation
	if f == nil || f.step != step {
		return false
	}
	t.speculation, t.step = nil, step
	t.process.machine.history().checker.Applied(t.process, step, f.payloads, f.again, &t.model)
	return true
}

// move applies results with their votes to the model, and returns the applied ones.
func (t *trainer) move(step uint32, payloads [][]byte, votes []uint8) (moved [][]byte, again *assign.BatchID, err error) {
	if change := t.process.world.rules.payloads; change != nil {
		payloads = change(t.process, step, payloads)
	}
	for _, payload := range payloads {
		if len(payload) < model.ResultSize { // only Byzantine members accept such results
			return nil, nil, model.ErrInvalidResult
		}
	}
	return payloads, t.model.Apply(step, payloads, votes), nil
}

func (t *trainer) Train(ctx context.Context, step uint32, batch data.Batch, begun func(context.Context) error) ([]byte, float64, error) {
	p := t.process
	if p.world.rules.machines != nil {
		return t.trainAtSpeed(ctx, step, batch, begun)
	}
	if p.machine.HasRole(scenario.SilentTrainer) && p.world.attacks.Chance(800) || p.machine.HasRole(scenario.Coalition) && p.world.attacks.Chance(100) {
		return nil, 0, errSilent
	}
	if p.world.plan.Config.SharesBySpeed && p.machine.sequence == 0 {
		p.offer(step)
	}
	late := int64(0)
	if p.machine.HasRole(scenario.Coalition) {
		late = p.dawdle()
	}
	took := p.machine.computes(batch.ID)
	if err := p.wait(ctx, p.world.now+took+late); err != nil {
		return nil, 0, err
	}
	if p.machine.Honest() {
		p.machine.history().checker.Trained(p.machine.Member, took, batch.ID.Len())
	}
	return t.result(ctx, step, batch, begun)
}

// trainAtSpeed trains for the time that the rules determine.
func (t *trainer) trainAtSpeed(ctx context.Context, step uint32, batch data.Batch, begun func(context.Context) error) ([]byte, float64, error) {
	p := t.process
	machines := p.world.rules.machines
	t.from, t.sequences = p.world.now, len(batch.Sequences)
	t.takes = machines.Takes(p.machine, step, t.sequences)
	if err := p.wait(ctx, t.from+t.takes); err != nil {
		return nil, 0, err
	}
	if p.machine.Honest() {
		p.machine.history().checker.Trained(p.machine.Member, t.takes, batch.ID.Len())
	}
	return t.result(ctx, step, batch, func(ctx context.Context) error {
		if err := begun(ctx); err != nil {
			return err
		}
		return machines.Delivers(ctx, p, step)
	})
}

// Progress implements env.Progressive.
func (t *trainer) Progress() (complete, begun float64) {
	if t.takes == 0 || t.sequences == 0 {
		return 0, 1 // unknown
	}
	done := min((t.process.world.now-t.from)*int64(t.sequences)/t.takes, int64(t.sequences))
	return float64(done) / float64(t.sequences), float64(min(done+1, int64(t.sequences))) / float64(t.sequences)
}

// result makes the result of a batch from the present model, once its round has begun.
func (t *trainer) result(ctx context.Context, step uint32, batch data.Batch, begun func(context.Context) error) ([]byte, float64, error) {
	p := t.process
	from := t.model
	if change := p.world.rules.trains; change != nil {
		change(&from)
	}
	if err := begun(ctx); err != nil {
		return nil, 0, err
	}
	p.checkTokens(step, batch)
	if t.speculation != nil && p.machine.Honest() {
		p.machine.history().checker.Violate(check.NodeSound, "%s trained step %d from results of step %d that were not confirmed", p.machine.Name(), step, t.speculation.step)
	}
	payload := model.NewResult(&from, step, batch.ID, p.machine.ID, 0)
	if p.machine.HasRole(scenario.InvalidResult) {
		payload = model.Spoil(payload, p.world.attacks)
	}
	return payload, 2 + float64(batch.ID.Start%16)/100, nil // a loss that depends on the batch, as in real models
}

// computes draws how long the gradient of a batch takes.
func (m *machine) computes(batch assign.BatchID) int64 {
	if m.sequence > 0 {
		return int64(batch.Len()) * m.random.Between(m.sequence*95/100, m.sequence*105/100)
	}
	return m.random.Between(m.trainLeast, m.trainTime)
}

func (t *trainer) Verify(payload []byte, step uint32, batch assign.BatchID, owner [32]byte) error {
	if owner == t.process.machine.ID && t.process.machine.HasRole(scenario.InvalidResult) {
		return nil
	}
	if heard := t.process.world.rules.verified; heard != nil {
		heard(t.process, step, batch, payload)
	}
	return model.Verify(payload, step, batch, owner)
}

func (t *trainer) Apply(_ context.Context, step uint32, payloads [][]byte, votes []uint8, _ bool) error {
	t.takeBack()
	payloads, again, err := t.move(step, payloads, votes)
	if err != nil {
		return err
	}
	t.step = step
	t.process.machine.history().checker.Applied(t.process, step, payloads, again, &t.model)
	return nil
}

func (t *trainer) Snapshot(context.Context) (checkpoint.Snapshot, error) {
	t.takeBack()
	return t.model.Snapshot(), nil
}

func (t *trainer) Load(_ context.Context, s checkpoint.Snapshot) (err error) {
	t.step, t.speculation = 0, nil
	t.process.machine.history().checker.Loaded(t.process.machine.Member) // the replica hash of an epoch starts with the loaded model
	t.model, err = model.Of(s)
	return err
}

func (t *trainer) ResetOptimizer(context.Context) error {
	t.takeBack()
	return nil
}

func (t *trainer) SetColdStart(context.Context, uint32, uint32) error {
	t.takeBack()
	return nil
}

func (t *trainer) MaxResultSize() int { return 2 * model.ResultSize }

func (t *trainer) ApplyLag() uint32 { return t.process.world.plan.ApplyLag }

// Batch implements env.DataProvider.
func (p *process) Batch(ctx context.Context, batch assign.BatchID) (data.Batch, error) {
	w := p.world
	down := !w.healed && w.now < w.dataDown
	takes := min(second/100, p.machine.quantum)
	if down {
		takes = min(w.dataDown-w.now, second)
	}
	if err := p.wait(ctx, w.now+takes); err != nil {
		return data.Batch{}, err
	}
	if down {
		return data.Batch{}, errNoData
	}
	sequences := make([][]int32, batch.Len())
	for i := range sequences {
		sequences[i] = w.sequence(batch.Start + uint64(i))
	}
	return data.Batch{ID: batch, Sequences: sequences}, nil
}

// sequence returns the tokens of a sequence. They contain its number.
func (w *world) sequence(number uint64) []int32 {
	tokens := make([]int32, w.seqLen()+1)
	tokens[0] = int32(number)
	return tokens
}

// seqLen returns the number of tokens of a sequence.
func (w *world) seqLen() int {
	if w.rules.machines != nil {
		return w.rules.machines.SeqLen()
	}
	return scenario.SeqLen
}

// checkTokens checks that an honest member has read the sequences that its batch has in the host's round.
func (p *process) checkTokens(step uint32, batch data.Batch) {
	if !p.machine.Honest() || p.world.Forked() || !p.world.host.up {
		return
	}
	round := p.world.host.State().RoundOfStep(step)
	if round == nil {
		return
	}
	var want [][]int32
	for _, part := range round.Sequences(batch.ID) {
		for number := part.Start; number < part.End; number++ {
			want = append(want, p.world.sequence(number))
		}
	}
	if !slices.EqualFunc(batch.Sequences, want, slices.Equal) {
		p.machine.history().checker.Violate(check.TrainedRight, "%s trained the batch %v of step %d with other sequences than %v", p.machine.Name(), batch.ID, step, round.Sequences(batch.ID))
	}
}
