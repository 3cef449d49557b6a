package sim

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/safetensors"
)

const (
	weights    = 8 // numbers of the model
	headerSize = 4 + 8 + 8 + 32
	resultSize = headerSize + sha256.Size
)

var (
	errInvalidResult = errors.New("not a result of this step, batch and trainer")
	errSilent        = errors.New("this trainer trains nothing")
	errNoData        = errors.New("no data server answers")
)

// model is the simulated model. Number 0 is the end of the newest batch that is part of
// it; the others mix all results that were applied, in their order.
type model [weights]uint64

func initialModel() model {
	var m model
	for i := 1; i < weights; i++ {
		m[i] = uint64(i)
	}
	return m
}

// apply makes results part of the model. It returns the first batch that cannot be: one
// before the end of another that already is.
func (m *model) apply(step uint32, payloads [][]byte) (again *assign.BatchID) {
	for i := 1; i < weights; i++ {
		m[i] = m[i]*6364136223846793005 + uint64(step)
	}
	for _, payload := range payloads {
		_, batch, _ := readHeader(payload)
		if batch.Start < m[0] && again == nil {
			again = &batch
		}
		m[0] = batch.End
		for i := 1; i < weights; i++ {
			m[i] = (m[i] ^ binary.LittleEndian.Uint64(payload[headerSize+8*(i%4):])) * 0x100000001b3
		}
	}
	return again
}

func (m *model) snapshot() checkpoint.Snapshot {
	data := make([]byte, 0, 8*weights)
	for _, w := range m {
		data = binary.LittleEndian.AppendUint64(data, w)
	}
	return checkpoint.Snapshot{
		Files:   []checkpoint.File{{Name: checkpoint.ConfigFile, Data: []byte(`{"architectures":["Simulated"]}`)}},
		Tensors: []safetensors.Tensor{{Name: "w", DType: "I64", Shape: []int64{weights}, Data: data}},
	}
}

// digest returns the digest of the checkpoint that is taken after a step.
func (m *model) digest(step uint32) [32]byte {
	s := m.snapshot()
	s.Step = step
	return s.Manifest().Digest()
}

func modelOf(s checkpoint.Snapshot) (model, error) {
	var m model
	if len(s.Tensors) != 1 || len(s.Tensors[0].Data) != 8*weights {
		return m, fmt.Errorf("not a simulated model: %d tensors", len(s.Tensors))
	}
	for i := range m {
		m[i] = binary.LittleEndian.Uint64(s.Tensors[0].Data[8*i:])
	}
	return m, nil
}

// newResult returns the bytes of a result; variant tells several of one batch apart.
func newResult(m *model, step uint32, batch assign.BatchID, trainer [32]byte, variant byte) []byte {
	b := make([]byte, 0, resultSize)
	b = binary.LittleEndian.AppendUint32(b, step)
	b = binary.LittleEndian.AppendUint64(b, batch.Start)
	b = binary.LittleEndian.AppendUint64(b, batch.End)
	b = append(b, trainer[:]...)
	seed := append(b[:len(b):len(b)], variant)
	for _, w := range m {
		seed = binary.LittleEndian.AppendUint64(seed, w)
	}
	hash := sha256.Sum256(seed)
	return append(b, hash[:]...)
}

func readHeader(payload []byte) (step uint32, batch assign.BatchID, trainer [32]byte) {
	return binary.LittleEndian.Uint32(payload), assign.BatchID{
		Start: binary.LittleEndian.Uint64(payload[4:]), End: binary.LittleEndian.Uint64(payload[12:]),
	}, [32]byte(payload[20:headerSize])
}

func verifyResult(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte) error {
	if len(payload) != resultSize {
		return errInvalidResult
	}
	if s, b, t := readHeader(payload); s != step || b != batch || t != trainer {
		return errInvalidResult
	}
	return nil
}

// spoil turns a result into something else.
func spoil(payload []byte, r *random) []byte {
	payload = slices.Clone(payload)
	switch r.below(3) {
	case 0:
		return append(payload, 0)
	case 1:
		return payload[:len(payload)-1-r.below(headerSize)]
	default:
		payload[r.below(headerSize)] ^= byte(1 + r.below(255))
		return payload
	}
}

// trainer implements env.Trainer for one process.
type trainer struct {
	process *process
	model   model
	step    uint32 // that it applied last; 0: it was loaded since

	foreseen *foreseen // nil: the model is what was applied
}

// foreseen is what moved the model and was not applied yet.
type foreseen struct {
	step     uint32
	payloads [][]byte
	before   model
	again    *assign.BatchID
}

// takeBack ends a foresight.
func (t *trainer) takeBack() {
	if t.foreseen != nil {
		t.model, t.foreseen = t.foreseen.before, nil
	}
}

// applied returns the model without what is only foreseen.
func (t *trainer) applied() *model {
	if t.foreseen != nil {
		return &t.foreseen.before
	}
	return &t.model
}

// Foresee implements env.Foreseer.
func (t *trainer) Foresee(_ context.Context, step uint32, payloads [][]byte, _ bool) (bool, error) {
	t.takeBack()
	before := t.model
	again, err := t.move(step, payloads)
	if err != nil {
		return false, err
	}
	t.foreseen = &foreseen{step, payloads, before, again}
	return true, nil
}

// Confirm implements env.Foreseer.
func (t *trainer) Confirm(step uint32) bool {
	f := t.foreseen
	if f == nil || f.step != step {
		return false
	}
	t.foreseen, t.step = nil, step
	t.process.machine.history().checker.applied(t.process, step, f.payloads, f.again)
	return true
}

// move makes results part of the model.
func (t *trainer) move(step uint32, payloads [][]byte) (again *assign.BatchID, err error) {
	if change := t.process.world.rules.payloads; change != nil {
		payloads = change(t.process, step, payloads)
	}
	for _, payload := range payloads {
		if len(payload) < resultSize { // only liars verify such
			return nil, errInvalidResult
		}
	}
	return t.model.apply(step, payloads), nil
}

func (t *trainer) Train(ctx context.Context, step uint32, batch data.Batch, begun func(context.Context) error) ([]byte, float64, error) {
	p := t.process
	if p.machine.lies(SilentTrainer) && p.world.lies.chance(800) || p.machine.lies(Gang) && p.world.lies.chance(100) {
		return nil, 0, errSilent
	}
	late := int64(0)
	if p.machine.lies(Gang) {
		late = p.dawdle()
	}
	if err := p.wait(ctx, p.world.now+p.machine.random.between(p.machine.trainTime/2, p.machine.trainTime)+late); err != nil {
		return nil, 0, err
	}
	model := t.model
	if change := p.world.rules.trains; change != nil {
		change(&model)
	}
	if err := begun(ctx); err != nil {
		return nil, 0, err
	}
	if t.foreseen != nil && p.machine.honest() {
		p.machine.history().checker.violate(NodeSound, "%s trained step %d from results of step %d that were not confirmed", p.machine.name(), step, t.foreseen.step)
	}
	payload := newResult(&model, step, batch.ID, p.machine.id, 0)
	if p.machine.lies(InvalidResult) {
		payload = spoil(payload, p.world.lies)
	}
	return payload, 2 + float64(batch.ID.Start%16)/100, nil // a loss that depends on the batch, as those of models do
}

func (t *trainer) Verify(payload []byte, step uint32, batch assign.BatchID, owner [32]byte) error {
	if owner == t.process.machine.id && t.process.machine.lies(InvalidResult) {
		return nil
	}
	if heard := t.process.world.rules.verified; heard != nil {
		heard(t.process, step, batch, payload)
	}
	return verifyResult(payload, step, batch, owner)
}

func (t *trainer) Apply(_ context.Context, step uint32, payloads [][]byte, _ bool) error {
	t.takeBack()
	again, err := t.move(step, payloads)
	if err != nil {
		return err
	}
	t.step = step
	t.process.machine.history().checker.applied(t.process, step, payloads, again)
	return nil
}

func (t *trainer) Snapshot(context.Context) (checkpoint.Snapshot, error) {
	t.takeBack()
	return t.model.snapshot(), nil
}

func (t *trainer) Load(_ context.Context, s checkpoint.Snapshot) (err error) {
	t.step, t.foreseen = 0, nil
	t.process.applied = 0 // the replica hash of an epoch begins with the loaded model
	t.model, err = modelOf(s)
	return err
}

func (t *trainer) ResetOptimizer(context.Context) error { return nil }

func (t *trainer) SetColdStart(context.Context, uint32, uint32) error { return nil }

func (t *trainer) MaxResultSize() int { return 2 * resultSize }

func (t *trainer) ApplyLag() uint32 { return t.process.world.plan.applyLag }

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
		sequences[i] = simSequence
	}
	return data.Batch{ID: batch, Sequences: sequences}, nil
}

var simSequence = make([]int32, simSeqLen+1)

// simModel is what the coordinator knows of the model.
func simModel() coordinator.Model {
	return coordinator.Model{
		MaxSeqLen:  simSeqLen,
		Checkpoint: coordinator.Checkpoint{Kind: coordinator.CheckpointDummy},
	}
}
