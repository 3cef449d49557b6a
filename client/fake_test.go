package client

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/checkpoint"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/data"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/safetensors"
)

const fakeWidth = 8 // numbers of the fake model

// fakeModel is the snapshot a run of fakes begins with.
func fakeModel() checkpoint.Snapshot { return fakeSnapshot([fakeWidth]uint64{1, 2, 3, 4, 5, 6, 7, 8}) }

// bulky makes a model larger than it is.
func bulky(s checkpoint.Snapshot, size int) checkpoint.Snapshot {
	if size > 0 {
		s.Files = append(s.Files, checkpoint.File{Name: "tokenizer.json", Data: make([]byte, size)})
	}
	return s
}

func fakeSnapshot(weights [fakeWidth]uint64) checkpoint.Snapshot {
	s := checkpoint.Snapshot{Files: []checkpoint.File{{Name: "config.json", Data: []byte(`{"architectures":["Fake"]}`)}}}
	for i, w := range weights {
		s.Tensors = append(s.Tensors, safetensors.Tensor{
			Name: fmt.Sprintf("w%d", i), DType: "I64", Shape: []int64{1}, Data: binary.LittleEndian.AppendUint64(nil, w),
		})
	}
	return s
}

// fakeTrainer does integer arithmetic in which the order and the set of all applied
// results leave their traces. The fields at its top make it misbehave.
type fakeTrainer struct {
	id       identity.ID
	duration time.Duration               // of a training
	silent   func(step uint32) bool      // the training fails
	lie      func(step uint32) bool      // the result is one that others refuse
	corrupt  func(step uint32) bool      // the weights are damaged after applying the step
	onApply  func(step uint32, own bool) // is called after applying
	lag      uint32                      // rounds after which results are applied; 0: 1
	bulk     int                         // bytes that make the model larger

	mu       sync.Mutex
	weights  [fakeWidth]uint64
	momentum uint64
	pending  map[uint32]uint64 // momentum that is in unapplied results, by step
	cold     [2]uint32
	loads    int
	busy     bool
}

var errFake = errors.New("fake failure")

// exclusive fails the test's run when the client uses the trainer twice at once.
func (f *fakeTrainer) exclusive() func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.busy {
		panic("trainer is used by two goroutines")
	}
	f.busy = true
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.busy = false
	}
}

func fakeHeader(step uint32, batch assign.BatchID, trainer [32]byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, step)
	b = binary.LittleEndian.AppendUint64(b, batch.Start)
	b = binary.LittleEndian.AppendUint64(b, batch.End)
	return append(b, trainer[:]...)
}

func (f *fakeTrainer) Train(ctx context.Context, step uint32, batch data.Batch) ([]byte, float64, error) {
	defer f.exclusive()()
	timer := time.NewTimer(f.duration)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	if f.silent != nil && f.silent(step) {
		return nil, 0, errFake
	}
	payload := fakeHeader(step, batch.ID, f.id)
	hash := sha256.Sum256(fmt.Append(nil, batch.Sequences, f.weights, f.momentum))
	payload = append(payload, hash[:]...)
	if f.lie != nil && f.lie(step) {
		payload = append(payload, 0)
	}
	if f.pending == nil {
		f.pending = map[uint32]uint64{}
	}
	f.pending[step] = 1
	return payload, float64(step), nil
}

func (f *fakeTrainer) Verify(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte) error {
	header := fakeHeader(step, batch, trainer)
	lying := f.lie != nil && f.lie(step) && trainer == f.id
	if !lying && (len(payload) != len(header)+32 || !slices.Equal(payload[:len(header)], header)) {
		return errFake
	}
	return nil
}

func (f *fakeTrainer) Apply(_ context.Context, step uint32, payloads [][]byte, own bool) error {
	defer f.exclusive()()
	if own {
		f.momentum += f.pending[step]
	}
	delete(f.pending, step)
	for i := range f.weights {
		f.weights[i] = f.weights[i]*6364136223846793005 + uint64(step) + uint64(f.cold[1])
		for _, p := range payloads {
			f.weights[i] = f.weights[i]*31 + binary.LittleEndian.Uint64(p[len(p)-8:])
		}
	}
	if f.corrupt != nil && f.corrupt(step) {
		f.weights[0]++
	}
	if f.onApply != nil {
		f.onApply(step, own)
	}
	return nil
}

func (f *fakeTrainer) Snapshot(context.Context) (checkpoint.Snapshot, error) {
	defer f.exclusive()()
	return bulky(fakeSnapshot(f.weights), f.bulk), nil
}

func (f *fakeTrainer) Load(_ context.Context, s checkpoint.Snapshot) error {
	defer f.exclusive()()
	f.load(s)
	return nil
}

func (f *fakeTrainer) load(s checkpoint.Snapshot) {
	for i := range f.weights {
		f.weights[i] = binary.LittleEndian.Uint64(s.Tensors[i].Data)
	}
	f.momentum, f.pending = 0, nil
	f.loads++
}

func (f *fakeTrainer) ResetOptimizer(context.Context) error {
	defer f.exclusive()()
	f.momentum = 0
	return nil
}

// SaveOptimizer implements OptimizerKeeper.
func (f *fakeTrainer) SaveOptimizer(_ context.Context, path string) error {
	defer f.exclusive()()
	return os.WriteFile(path, binary.LittleEndian.AppendUint64(nil, f.momentum), 0o600)
}

// LoadOptimizer implements OptimizerKeeper.
func (f *fakeTrainer) LoadOptimizer(_ context.Context, path string) error {
	defer f.exclusive()()
	raw, err := os.ReadFile(path)
	if err != nil || len(raw) != 8 {
		return errors.Join(errFake, err)
	}
	f.momentum = binary.LittleEndian.Uint64(raw)
	return nil
}

func (f *fakeTrainer) SetColdStart(_ context.Context, start, steps uint32) error {
	defer f.exclusive()()
	f.cold = [2]uint32{start, steps}
	return nil
}

func (f *fakeTrainer) MaxResultSize() int { return 1 << 10 }

func (f *fakeTrainer) ApplyLag() uint32 { return max(f.lag, 1) }

// fakeData makes sequences from their indices.
type fakeData struct {
	err func(batch assign.BatchID) error
}

func (d fakeData) Batch(_ context.Context, batch assign.BatchID) (data.Batch, error) {
	if d.err != nil {
		if err := d.err(batch); err != nil {
			return data.Batch{}, err
		}
	}
	var sequences [][]int32
	for i := batch.Start; i < batch.End; i++ {
		sequences = append(sequences, []int32{int32(i), int32(i + 1), int32(i + 2)})
	}
	return data.Batch{ID: batch, Sequences: sequences}, nil
}

// fakeConfig is a run of three epochs of three rounds.
func fakeConfig(clients uint16) coordinator.Config {
	return coordinator.Config{
		WarmupTime: 30_000, CooldownTime: 30_000, RoundsPerEpoch: 3, MaxRoundTrainTime: 20_000, RoundWitnessTime: 1000,
		WaitingForMembersExtraTime: 1000, GlobalBatchSizeStart: 12, GlobalBatchSizeEnd: 12, TotalSteps: 9,
		InitMinClients: clients, MinClients: 1,
	}
}
