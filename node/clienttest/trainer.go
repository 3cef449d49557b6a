package clienttest

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

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/pause"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
)

// Trainer implements env.Trainer and env.OptimizerSaver by integer arithmetic. Its model depends on
// the set and the order of all applied results. Duration is the duration of a training and Lag the
// number of rounds after which results are applied. The other fields make it misbehave, or enlarge
// its model.
type Trainer struct {
	ID       identity.ID
	Duration time.Duration                           // of a training
	Each     func() time.Duration                    // additional time for the next sequence; nil: none
	Silent   func(step uint32) bool                  // reports whether the training fails
	Invalid  func(step uint32) bool                  // reports whether peers refuse the result
	Corrupt  func(step uint32) bool                  // reports whether the weights are damaged after applying the step
	Loss     func(step uint32) float64               // loss to report; nil: the number of the step
	OnTrain  func(step uint32, batch assign.BatchID) // called when a training begins
	OnApply  func(step uint32, own bool)             // called after applying
	Lag      uint32                                  // rounds after which results are applied; 0 means 1
	Bulk     int                                     // bytes added to the model
	Copying  time.Duration                           // time to copy the model
	Writing  time.Duration                           // time to write the momentum
	Heavy    int                                     // bytes added to the reported size of the momentum
	HeldOuts int                                     // tokens of held-out data; 0: none
	Measures time.Duration                           // time to measure the model on them
	Claims   float64                                 // loss on them that it returns; 0: the true loss

	mu          sync.Mutex
	weights     [Width]uint64
	momentum    uint64
	pending     map[uint32]uint64 // momentum in unapplied results, by step
	cold        [2]uint32
	loads       int
	busy        bool
	complete    float64 // part of the running training, as Progress returns it
	begun       float64
	speculation *speculation
}

// speculation contains results that changed the weights and are not applied or undone yet.
type speculation struct {
	step      uint32
	payloads  [][]byte
	own       bool
	before    [Width]uint64
	confirmed bool
}

// ErrFake is the error of every failure that a test causes.
var ErrFake = errors.New("fake failure")

// exclusive fails the test's run if the client uses the trainer concurrently.
func (f *Trainer) exclusive() func() {
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

// decide applies the speculation if it was confirmed, and undoes it otherwise.
func (f *Trainer) decide() {
	f.mu.Lock()
	of := f.speculation
	f.speculation = nil
	if of != nil && !of.confirmed {
		f.weights = of.before
	}
	f.mu.Unlock()
	if of != nil && of.confirmed {
		f.updateMomentum(of.step, of.own)
	}
}

// updateMomentum updates the momentum after the results of a step were applied to the weights.
func (f *Trainer) updateMomentum(step uint32, own bool) {
	if own {
		f.momentum += f.pending[step]
	}
	delete(f.pending, step)
	if f.Corrupt != nil && f.Corrupt(step) {
		f.weights[0]++
	}
	if f.OnApply != nil {
		f.OnApply(step, own)
	}
}

// move applies the results of a step to the weights. Full votes change nothing.
func (f *Trainer) move(step uint32, payloads [][]byte, votes []uint8) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.weights {
		f.weights[i] = f.weights[i]*6364136223846793005 + uint64(step) + uint64(f.cold[1])
		for n, p := range payloads {
			f.weights[i] = f.weights[i]*31 + binary.LittleEndian.Uint64(p[len(p)-8:])
			if votes != nil {
				f.weights[i] -= uint64(assign.FullVote - votes[n])
			}
		}
	}
}

// Speculate implements env.Speculator.
func (f *Trainer) Speculate(_ context.Context, step uint32, payloads [][]byte, votes []uint8, own bool) (bool, error) {
	defer f.exclusive()()
	f.decide()
	before := f.Weights()
	f.move(step, payloads, votes)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.speculation = &speculation{step: step, payloads: payloads, own: own, before: before}
	return true, nil
}

// Confirm implements env.Speculator.
func (f *Trainer) Confirm(step uint32) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.speculation == nil || f.speculation.step != step {
		return false
	}
	f.speculation.confirmed = true
	return true
}

// Weights returns the values of the model.
func (f *Trainer) Weights() [Width]uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.weights
}

// Momentum returns the number of this trainer's results in the optimizer state.
func (f *Trainer) Momentum() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.momentum
}

// Unapplied returns the number of steps that this trainer has trained and that are not applied yet.
func (f *Trainer) Unapplied() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.pending)
}

// Loads returns the number of loaded models.
func (f *Trainer) Loads() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.loads
}

// Result returns the bytes of a result. hash distinguishes several results of one batch.
func Result(step uint32, batch assign.BatchID, trainer, hash [32]byte) []byte {
	return append(header(step, batch, trainer), hash[:]...)
}

func header(step uint32, batch assign.BatchID, trainer [32]byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, step)
	b = binary.LittleEndian.AppendUint64(b, batch.Start)
	b = binary.LittleEndian.AppendUint64(b, batch.End)
	return append(b, trainer[:]...)
}

// compute takes the time of a training.
func (f *Trainer) compute(ctx context.Context, sequences int) error {
	if f.Each == nil {
		f.advance(0, 1)
		return pause.For(ctx, f.Duration)
	}
	f.advance(0, 0)
	if err := pause.For(ctx, f.Duration); err != nil {
		return err
	}
	for i := range sequences {
		f.advance(float64(i)/float64(sequences), float64(i+1)/float64(sequences))
		if err := pause.For(ctx, f.Each()); err != nil {
			return err
		}
	}
	return nil
}

func (f *Trainer) advance(complete, begun float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.complete, f.begun = complete, begun
}

// Progress implements env.Progressive.
func (f *Trainer) Progress() (complete, begun float64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.complete, f.begun
}

// Train implements env.Trainer.
func (f *Trainer) Train(ctx context.Context, step uint32, batch data.Batch, begun func(context.Context) error) ([]byte, float64, error) {
	defer f.exclusive()()
	if f.OnTrain != nil {
		f.OnTrain(step, batch.ID)
	}
	if f.compute(ctx, len(batch.Sequences)) != nil {
		return nil, 0, ctx.Err()
	}
	if f.Silent != nil && f.Silent(step) {
		return nil, 0, ErrFake
	}
	weights, momentum := f.weights, f.momentum
	if err := begun(ctx); err != nil {
		return nil, 0, err
	}
	if f.speculation != nil {
		if momentum += f.pending[f.speculation.step]; !f.speculation.confirmed {
			panic("training continued from an unconfirmed speculation")
		}
		f.decide()
	}
	gradient := sha256.Sum256(fmt.Append(nil, batch.Sequences, weights, momentum))
	if _, twice := f.pending[step]; twice {
		return nil, 0, fmt.Errorf("%w: step %d was trained before", ErrFake, step)
	}
	payload := Result(step, batch.ID, f.ID, gradient)
	if f.Invalid != nil && f.Invalid(step) {
		payload = append(payload, 0)
	}
	if f.pending == nil {
		f.pending = map[uint32]uint64{}
	}
	f.pending[step] = 1
	loss := float64(step)
	if f.Loss != nil {
		loss = f.Loss(step)
	}
	return payload, loss, nil
}

// Verify implements env.Trainer.
func (f *Trainer) Verify(payload []byte, step uint32, batch assign.BatchID, trainer [32]byte) error {
	header := header(step, batch, trainer)
	invalid := f.Invalid != nil && f.Invalid(step) && trainer == f.ID
	if !invalid && (len(payload) != len(header)+32 || !slices.Equal(payload[:len(header)], header)) {
		return ErrFake
	}
	return nil
}

// Apply implements env.Trainer.
func (f *Trainer) Apply(_ context.Context, step uint32, payloads [][]byte, votes []uint8, own bool) error {
	defer f.exclusive()()
	f.decide()
	f.move(step, payloads, votes)
	f.updateMomentum(step, own)
	return nil
}

// HeldOut implements env.Measurer. All tokens are in one sequence.
func (f *Trainer) HeldOut() (sequences, tokens int) { return min(1, f.HeldOuts), f.HeldOuts }

// Measure implements env.Measurer. The loss depends on the weights.
func (f *Trainer) Measure(ctx context.Context) (float64, error) {
	defer f.exclusive()()
	f.decide()
	if err := pause.For(ctx, f.Measures); err != nil {
		return 0, err
	}
	if f.Claims != 0 {
		return f.Claims, nil
	}
	return 2 + float64(f.Weights()[0]%1000)/1000, nil
}

// Snapshot implements env.Trainer.
func (f *Trainer) Snapshot(context.Context) (checkpoint.Snapshot, error) {
	time.Sleep(f.Copying)
	defer f.exclusive()()
	f.decide()
	return Bulky(Snapshot(f.weights), f.Bulk), nil
}

// Lend implements env.Lender. It overwrites the lent snapshot afterwards.
func (f *Trainer) Lend(_ context.Context, use func(s checkpoint.Snapshot) error) error {
	defer f.exclusive()()
	f.decide()
	s := Bulky(Snapshot(f.weights), f.Bulk)
	defer func() {
		for _, tensor := range s.Tensors {
			clear(tensor.Data)
		}
	}()
	return use(s)
}

// Load implements env.Trainer.
func (f *Trainer) Load(_ context.Context, s checkpoint.Snapshot) error {
	defer f.exclusive()()
	f.decide()
	for i := range f.weights {
		f.weights[i] = binary.LittleEndian.Uint64(s.Tensors[i].Data)
	}
	f.momentum, f.pending = 0, nil
	f.loads++
	return nil
}

// ResetOptimizer implements env.Trainer.
func (f *Trainer) ResetOptimizer(context.Context) error {
	defer f.exclusive()()
	f.decide()
	f.momentum = 0
	return nil
}

// SaveOptimizer implements env.OptimizerSaver.
func (f *Trainer) SaveOptimizer(_ context.Context, limit int) (bytes int, write func(path string) error, err error) {
	defer f.exclusive()()
	f.decide()
	momentum := binary.LittleEndian.AppendUint64(nil, f.momentum)
	bytes = len(momentum) + f.Heavy
	return bytes, func(path string) error {
		if bytes > limit {
			defer f.exclusive()()
		}
		time.Sleep(f.Writing)
		return os.WriteFile(path, momentum, 0o600)
	}, nil
}

// LoadOptimizer implements env.OptimizerSaver.
func (f *Trainer) LoadOptimizer(_ context.Context, path string) error {
	defer f.exclusive()()
	f.decide()
	raw, err := os.ReadFile(path)
	if err != nil || len(raw) != 8 {
		return errors.Join(ErrFake, err)
	}
	f.momentum = binary.LittleEndian.Uint64(raw)
	return nil
}

// SetColdStart implements env.Trainer.
func (f *Trainer) SetColdStart(_ context.Context, start, steps uint32) error {
	defer f.exclusive()()
	f.decide()
	f.cold = [2]uint32{start, steps}
	return nil
}

// MaxResultSize implements env.Trainer.
func (f *Trainer) MaxResultSize() int { return 1 << 10 }

// ApplyLag implements env.Trainer.
func (f *Trainer) ApplyLag() uint32 { return max(f.Lag, 1) }
