package train

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strconv"

	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/torch"
)

// OptimizerFile is the name of the file with the optimizer state in the folder of a model.
const OptimizerFile = "optimizer.safetensors"

// OptimizerState is the state that an optimizer needs to continue training as if it had not been
// interrupted.
type OptimizerState struct {
	Optimizer string // "adamw", "distro" or "localsteps"
	Step      uint32 // of the newest update
	Trained   uint32 // newest step that the momentum of "distro" includes; 0: Step
	Updates   uint64
	DataIndex uint64 // first sequence not yet trained on; set by the caller
	Settings  string // the caller's training settings, in its own format; may be empty
	Tensors   []safetensors.Tensor
	memory    []*torch.Memory // of tensors that libtorch has lent
}

// Keys of the metadata of an OptimizerFile.
const (
	optimizerKey = "optimizer"
	stepKey      = "step"
	updatesKey   = "updates"
	dataIndexKey = "data_index"
	trainedKey   = "trained_step" // only if it is not the step
	settingsKey  = "settings"     // only if there are any
)

// Write writes the state to a file atomically.
func (s OptimizerState) Write(path string) error {
	defer runtime.KeepAlive(s.memory)
	metadata := map[string]string{
		optimizerKey: s.Optimizer,
		stepKey:      strconv.FormatUint(uint64(s.Step), 10),
		updatesKey:   strconv.FormatUint(s.Updates, 10),
		dataIndexKey: strconv.FormatUint(s.DataIndex, 10),
	}
	if s.Settings != "" {
		metadata[settingsKey] = s.Settings
	}
	if s.Trained != 0 {
		metadata[trainedKey] = strconv.FormatUint(uint64(s.Trained), 10)
	}
	return safetensors.Write(path, s.Tensors, metadata)
}

// ReadOptimizerState reads the output of Write.
func ReadOptimizerState(path string) (OptimizerState, error) {
	tensors, metadata, err := safetensors.Read(path)
	if err != nil {
		return OptimizerState{}, err
	}
	state := OptimizerState{Optimizer: metadata[optimizerKey], Settings: metadata[settingsKey], Tensors: tensors}
	number := func(key string, bits int) (n uint64) {
		if err == nil {
			if n, err = strconv.ParseUint(metadata[key], 10, bits); err != nil {
				err = fmt.Errorf("read %s: metadata %s is %q, want a number", path, key, metadata[key])
			}
		}
		return n
	}
	state.Step = uint32(number(stepKey, 32))
	if metadata[trainedKey] != "" {
		state.Trained = uint32(number(trainedKey, 32))
	}
	state.Updates, state.DataIndex = number(updatesKey, 63), number(dataIndexKey, 64)
	return state, err
}

// values returns the tensor with a prefix for each parameter for which has returns true (nil: for
// all), in the parameters' order. The values are read-only.
func (s OptimizerState) values(r *store, prefix string, has func(i int) bool) ([][]float32, error) {
	values := make([][]float32, len(r.parameters))
	byName := make(map[string]int, len(s.Tensors)) // large models have tens of thousands
	for i, tensor := range s.Tensors {
		byName[tensor.Name] = i
	}
	for i, p := range r.parameters {
		if has != nil && !has(i) {
			continue
		}
		at, found := byName[prefix+"."+p.name]
		if !found || !slices.Equal(s.Tensors[at].Shape, p.shape) {
			return nil, fmt.Errorf("%w: optimizer state has no tensor %s.%s of shape %v", errModel, prefix, p.name, p.shape)
		}
		var err error
		if values[i], err = read(s.Tensors[at]); err != nil {
			return nil, fmt.Errorf("%w: optimizer state: %w", errModel, err)
		}
	}
	return values, nil
}

func (s OptimizerState) check(optimizer string, step uint32) error {
	if s.Optimizer != optimizer {
		return fmt.Errorf("%w: optimizer state belongs to %q, want %q", errModel, s.Optimizer, optimizer)
	}
	if s.Step != step {
		return fmt.Errorf("%w: optimizer state has step %d, the model has step %d", errModel, s.Step, step)
	}
	return nil
}

// OptimizerState returns a copy of the running means.
func (a *AdamW) OptimizerState(ctx context.Context) (OptimizerState, error) {
	if err := a.lock(ctx); err != nil {
		return OptimizerState{}, fmt.Errorf("save optimizer: %w", err)
	}
	defer a.unlock()
	return a.state(safetensors.FromFloat32s), nil
}

// tensorOf makes a tensor of values: a copy, as safetensors.FromFloat32s does, or lent.
type tensorOf func(name string, shape []int64, values []float32) safetensors.Tensor

func (a *AdamW) state(of tensorOf) OptimizerState {
	return OptimizerState{Optimizer: "adamw", Step: a.step, Updates: a.updates, Tensors: a.means(of)}
}

// means returns the running means.
func (a *AdamW) means(of tensorOf) (tensors []safetensors.Tensor) {
	for _, m := range a.moments {
		for i, p := range a.parameters {
			if m.tensors[i] != nil {
				tensors = append(tensors, of(m.name+"."+p.name, p.shape, m.tensors[i].Float32s()))
			}
		}
	}
	return tensors
}

// share returns objects that keep the memory of the running means.
func (a *AdamW) share() (memory []*torch.Memory) {
	for _, mean := range slices.Concat(a.moments[0].tensors, a.moments[1].tensors) {
		if mean != nil {
			memory = append(memory, mean.Share())
		}
	}
	return memory
}

// SetOptimizerState continues from a state that was saved together with this model.
func (a *AdamW) SetOptimizerState(ctx context.Context, state OptimizerState) error {
	if err := a.lock(ctx); err != nil {
		return fmt.Errorf("load optimizer: %w", err)
	}
	defer a.unlock()
	if err := state.check("adamw", a.step); err != nil {
		return err
	}
	return a.setMeans(state)
}

// setMeans continues from the running means of a state.
func (a *AdamW) setMeans(state OptimizerState) error {
	var values [2][][]float32
	for i, m := range a.moments {
		var err error
		have := func(j int) bool { return m.tensors[j] != nil }
		if values[i], err = state.values(a.store, m.name, have); err != nil {
			return err
		}
		for _, tensor := range values[i] {
			for _, value := range tensor {
				if !(math.Abs(float64(value)) <= math.MaxFloat32) || m.name == secondMoment && value < 0 {
					return fmt.Errorf("%w: optimizer state: %s holds %v", errModel, m.name, value)
				}
			}
		}
	}
	for i, m := range a.moments {
		for j, mean := range float32s(m.tensors) {
			copy(mean, values[i][j])
		}
	}
	a.updates = state.Updates
	return nil
}

// OptimizerState returns a copy of the momentum. Results that wait for Apply are not part of it, so
// there must be none.
func (t *Trainer) OptimizerState(ctx context.Context) (OptimizerState, error) {
	return t.stateOf(ctx, safetensors.FromFloat32s)
}

// LendOptimizerState is OptimizerState without a copy. The next call that changes the momentum
// changes the result.
func (t *Trainer) LendOptimizerState(ctx context.Context) (OptimizerState, error) {
	return t.stateOf(ctx, lent)
}

func (t *Trainer) stateOf(ctx context.Context, of tensorOf) (OptimizerState, error) {
	if err := t.lock(ctx); err != nil {
		return OptimizerState{}, fmt.Errorf("save optimizer: %w", err)
	}
	defer t.unlock()
	return t.state(of)
}

func (t *Trainer) state(of tensorOf) (OptimizerState, error) {
	defer t.optimizer.history.lock()()
	if len(t.optimizer.sent) > 0 {
		return OptimizerState{}, fmt.Errorf("save optimizer: %w: a trained step was not applied yet", errStep)
	}
	state := OptimizerState{Optimizer: "distro", Step: t.step, Updates: t.optimizer.encoded}
	if t.optimizer.newest != t.step {
		state.Trained = t.optimizer.newest
	}
	for i, p := range t.parameters {
		state.Tensors = append(state.Tensors, of(momentumName+"."+p.name, p.shape, t.optimizer.deltas[i]))
	}
	return state, nil
}

const (
	momentumName = "momentum"
	secondMoment = "exp_avg_sq" // AdamW's mean of squares
)

// SetOptimizerState continues from a state that was saved together with this model. If results are
// audited, it only resets the momentum, because auditors could not verify the origin of a saved
// one.
func (t *Trainer) SetOptimizerState(ctx context.Context, state OptimizerState) error {
	if err := t.lock(ctx); err != nil {
		return fmt.Errorf("load optimizer: %w", err)
	}
	defer t.unlock()
	if err := state.check("distro", t.step); err != nil {
		return err
	}
	values, err := state.values(t.store, momentumName, nil)
	if err != nil {
		return err
	}
	if length := norm(values); !(length <= maxUpdate) {
		return fmt.Errorf("%w: optimizer state is out of range", errModel)
	}
	t.optimizer.reset()
	if t.optimizer.history != nil {
		t.log.Info("momentum reset: with audits it must continue from a result of this process")
		return nil
	}
	for i := range values {
		copy(t.optimizer.deltas[i], values[i])
	}
	t.optimizer.encoded, t.optimizer.newest = state.Updates, state.Step
	if state.Trained != 0 {
		t.optimizer.newest = state.Trained
	}
	return nil
}

const (
	unsentName        = "unsent"
	outerMomentumName = "outer_momentum"
)

// OptimizerState returns a copy of the running means and of the residual. Results that wait for
// Apply are not part of it, so there must be none.
func (t *LocalTrainer) OptimizerState(ctx context.Context) (s OptimizerState, err error) {
	err = t.whenSettled(ctx, func() { s = t.state(safetensors.FromFloat32s) })
	return s, err
}

// LendOptimizerState is OptimizerState without a copy. The next call that changes the state changes
// the result. The result may be written even after Close.
func (t *LocalTrainer) LendOptimizerState(ctx context.Context) (s OptimizerState, err error) {
	err = t.whenSettled(ctx, func() { s = t.state(lent); s.memory = t.inner.share() })
	return s, err
}

// whenSettled calls f under the locks, unless a result waits for Apply.
func (t *LocalTrainer) whenSettled(ctx context.Context, f func()) error {
	if err := t.lock(ctx); err != nil {
		return fmt.Errorf("save optimizer: %w", err)
	}
	defer t.unlock()
	defer t.history.lock()()
	if len(t.sent) > 0 {
		return fmt.Errorf("save optimizer: %w: a trained step was not applied yet", errStep)
	}
	f()
	return nil
}

func (t *LocalTrainer) state(of tensorOf) OptimizerState {
	state := OptimizerState{Optimizer: "localsteps", Step: t.step, Updates: t.inner.updates, Tensors: t.inner.means(of)}
	for i, p := range t.parameters {
		state.Tensors = append(state.Tensors, of(unsentName+"."+p.name, p.shape, t.sums[i]))
		if t.momenta != nil {
			state.Tensors = append(state.Tensors, of(outerMomentumName+"."+p.name, p.shape, t.momenta[i]))
		}
	}
	return state
}

// SetOptimizerState continues from a state that was saved together with this model.
func (t *LocalTrainer) SetOptimizerState(ctx context.Context, state OptimizerState) error {
	if err := t.lock(ctx); err != nil {
		return fmt.Errorf("load optimizer: %w", err)
	}
	defer t.unlock()
	if err := state.check("localsteps", t.step); err != nil {
		return err
	}
	sums, err := state.values(t.store, unsentName, nil)
	if err != nil {
		return err
	}
	var momenta [][]float32
	if t.momenta != nil {
		if momenta, err = state.values(t.store, outerMomentumName, nil); err != nil {
			return err
		}
	}
	if length := norm(slices.Concat(sums, momenta)); !(length <= maxUpdate) {
		return fmt.Errorf("%w: optimizer state is out of range", errModel)
	}
	if t.history != nil {
		t.forget()
		t.log.Info("residual reset: with audits it must continue from a result of this process")
		return nil
	}
	if err := t.inner.setMeans(state); err != nil {
		return err
	}
	for i := range sums {
		copy(t.sums[i], sums[i])
		if momenta != nil {
			copy(t.momenta[i], momenta[i])
		}
	}
	t.fed, t.sent = 0, map[uint32]sentSums{}
	return nil
}
