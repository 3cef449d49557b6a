package train

import (
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"unsafe"

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
func (s OptimizerState) values(parameters []parameter, prefix string, has func(i int) bool) ([][]float32, error) {
	values := make([][]float32, len(parameters))
	byName := make(map[string]int, len(s.Tensors)) // large models have tens of thousands
	for i, tensor := range s.Tensors {
		byName[tensor.Name] = i
	}
	for i, p := range parameters {
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

// add adds a tensor with a prefix for each parameter: a copy of its values, or their memory if lend
// is true. It adds none for nil values.
func (s *OptimizerState) add(prefix string, parameters []parameter, values [][]float32, lend bool) {
	of := safetensors.FromFloat32s
	if lend {
		of = lent
	}
	for i, p := range parameters {
		if values[i] != nil {
			s.Tensors = append(s.Tensors, of(prefix+"."+p.name, p.shape, values[i]))
		}
	}
}

// Names of the tensors in an OptimizerFile, before the names of the parameters.
const (
	momentumName      = "momentum" // of DisTrO
	firstMoment       = "exp_avg"
	secondMoment      = "exp_avg_sq" // AdamW's mean of squares
	unsentName        = "unsent"
	outerMomentumName = "outer_momentum"
)

// read returns the values of a tensor: its own memory if possible, else a copy.
func read(t safetensors.Tensor) ([]float32, error) {
	at := unsafe.Pointer(unsafe.SliceData(t.Data))
	if t.DType != safetensors.F32 || uintptr(at)%4 != 0 {
		return t.Float32s()
	}
	return unsafe.Slice((*float32)(at), len(t.Data)/4), t.Validate()
}

// lent returns a tensor that uses the memory of values. Machines that libtorch runs on are
// little-endian.
func lent(name string, shape []int64, values []float32) safetensors.Tensor {
	data := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), 4*len(values))
	return safetensors.Tensor{Name: name, DType: safetensors.F32, Shape: append([]int64{}, shape...), Data: data}
}
