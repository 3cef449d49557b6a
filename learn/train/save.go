package train

import (
	"context"
	"fmt"
	"unsafe"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/model"
)

// Save writes the model and the running means of the same step to a folder. note adds the fields
// that only the caller knows. Save copies nothing, because there may not be enough memory to copy a
// large model.
func (a *AdamW) Save(ctx context.Context, dir string, note func(s *OptimizerState)) error {
	return a.save(ctx, dir, note, func() (OptimizerState, error) { return a.state(lent), nil })
}

// Save writes the model and the momentum to a folder, as AdamW.Save does. Results that wait for
// Apply are part of neither, so there must be none.
func (t *Trainer) Save(ctx context.Context, dir string, note func(s *OptimizerState)) error {
	return t.save(ctx, dir, note, func() (OptimizerState, error) { return t.state(lent) })
}

func (r *replica) save(ctx context.Context, dir string, note func(s *OptimizerState), optimizer func() (OptimizerState, error)) error {
	if err := r.lock(ctx); err != nil {
		return fmt.Errorf("save model: %w", err)
	}
	defer r.unlock()
	s, err := r.snapshot(ctx, model.Lend)
	if err != nil {
		return fmt.Errorf("save model: %w", err)
	}
	state, err := optimizer()
	if err != nil {
		return err
	}
	note(&state)
	return checkpoint.WriteDir(dir, s, checkpoint.Extra{Name: OptimizerFile, Write: state.Write})
}

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
