package train

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
)

// stepper contains the common methods of the two trainers.
type stepper interface {
	Step(ctx context.Context, step uint32, batch data.Batch) (float64, error)
	Snapshot(ctx context.Context) (checkpoint.Snapshot, error)
	OptimizerState(ctx context.Context) (OptimizerState, error)
	SetOptimizerState(ctx context.Context, s OptimizerState) error
	Evaluate(ctx context.Context, sequences [][]int32) (float64, error)
	Close() error
}

func steppers(t *testing.T) map[string]func(t *testing.T, s checkpoint.Snapshot) stepper {
	t.Helper()
	open := func(make func(o Options) (stepper, error)) func(t *testing.T, s checkpoint.Snapshot) stepper {
		return func(t *testing.T, s checkpoint.Snapshot) stepper {
			t.Helper()
			o := toyOptions(t)
			o.Model = s
			trainer, err := make(o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = trainer.Close() })
			return trainer
		}
	}
	return map[string]func(t *testing.T, s checkpoint.Snapshot) stepper{
		"distro": open(func(o Options) (stepper, error) { return New(t.Context(), o) }),
		"adamw":  open(func(o Options) (stepper, error) { return NewAdamW(t.Context(), o) }),
	}
}

func TestLossFalls(t *testing.T) {
	for name, open := range steppers(t) {
		t.Run(name, func(t *testing.T) {
			trainer := open(t, toyModel(t, 1))
			held := toyBatch(0, 6).Sequences
			before, err := trainer.Evaluate(t.Context(), held)
			if err != nil {
				t.Fatal(err)
			}
			for step := range uint32(60) {
				if _, err := trainer.Step(t.Context(), step, toyBatch(uint64(step)*4, uint64(step)*4+4)); err != nil {
					t.Fatal(err)
				}
			}
			after, err := trainer.Evaluate(t.Context(), held)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("loss %.3f to %.3f", before, after)
			if math.Abs(before-math.Log(128)) > 0.2 || after > 0.7*before {
				t.Errorf("loss went from %.3f to %.3f", before, after)
			}
		})
	}
}

// TestResume checks that a trainer resumed from a folder continues exactly like a trainer that
// never stopped.
func TestResume(t *testing.T) {
	for name, open := range steppers(t) {
		t.Run(name, func(t *testing.T) {
			trainer := open(t, toyModel(t, 1))
			steps := func(trainer stepper, from, to uint32) {
				for step := from; step < to; step++ {
					if _, err := trainer.Step(t.Context(), step, toyBatch(uint64(step)*2, uint64(step)*2+2)); err != nil {
						t.Fatal(err)
					}
				}
			}
			steps(trainer, 1, 4)
			s, err := trainer.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			state, err := trainer.OptimizerState(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), OptimizerFile)
			if err := state.Write(path); err != nil {
				t.Fatal(err)
			}
			if state, err = ReadOptimizerState(path); err != nil {
				t.Fatal(err)
			}
			resumed := open(t, s)
			if err := resumed.SetOptimizerState(t.Context(), state); err != nil {
				t.Fatal(err)
			}
			steps(trainer, 4, 7)
			steps(resumed, 4, 7)
			if digest(t, trainer) != digest(t, resumed) {
				t.Error("a resumed training differs")
			}
			if err := resumed.SetOptimizerState(t.Context(), state); !errors.Is(err, errModel) {
				t.Errorf("state of another step: error = %v, want errModel", err)
			}
		})
	}
}

// readVectors reads reference steps of a PyTorch optimizer, and returns an engine to repeat them.
func readVectors(t *testing.T, file string, reference any) *torch.Engine {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, reference); err != nil {
		t.Fatal(err)
	}
	return torchtest.Engine(t)
}

// TestAdamWReference compares AdamW's steps with torch.optim.AdamW
// (scripts/reference/adamw_vectors.py).
func TestAdamWReference(t *testing.T) {
	var reference struct {
		Cases []struct {
			Betas       [2]float64
			Eps         float64
			WeightDecay float64 `json:"weight_decay"`
			Shape       []int64
			Parameter   []float32
			Steps       []struct {
				LR                  float64
				Gradient, Parameter []float32
			}
		}
	}
	engine := readVectors(t, "adamw.json", &reference)
	for i, c := range reference.Cases {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			constants := torch.AdamW{Beta1: c.Betas[0], Beta2: c.Betas[1], Epsilon: c.Eps, WeightDecay: c.WeightDecay}
			err := engine.Do(t.Context(), false, func(s *torch.Scope) error {
				parameter := s.FromFloat32s(c.Parameter, c.Shape...)
				m, v := s.Zeros(torch.F32, c.Shape...), s.Zeros(torch.F32, c.Shape...)
				for j, step := range c.Steps {
					constants.Step(parameter, s.FromFloat32s(step.Gradient, c.Shape...), m, v, step.LR, int64(j+1))
					for k, got := range parameter.Float32s() {
						if want := step.Parameter[k]; math.Abs(float64(got-want)) > 1e-6*math.Abs(float64(want)) {
							t.Errorf("step %d, element %d: %v, want %v", j+1, k, got, want)
						}
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestDamagedStateIsRefused checks that a damaged state is refused. A single damaged number in a
// file would turn every weight into NaN.
func TestDamagedStateIsRefused(t *testing.T) {
	for name, open := range steppers(t) {
		t.Run(name, func(t *testing.T) {
			trainer := open(t, toyModel(t, 1))
			if _, err := trainer.Step(t.Context(), 1, toyBatch(0, 4)); err != nil {
				t.Fatal(err)
			}
			for _, damage := range []float32{float32(math.NaN()), float32(math.Inf(-1)), -1} {
				state, err := trainer.OptimizerState(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				last := len(state.Tensors) - 1
				values, err := state.Tensors[last].Float32s()
				if err != nil {
					t.Fatal(err)
				}
				values[0] = damage
				state.Tensors[last] = safetensors.FromFloat32s(state.Tensors[last].Name, state.Tensors[last].Shape, values)
				err = trainer.SetOptimizerState(t.Context(), state)
				if meant := name == "distro" && damage == -1; meant != (err == nil) || !meant && !errors.Is(err, errModel) {
					t.Errorf("%v: %v", damage, err)
				}
			}
		})
	}
}

// TestStateOfManyTensors checks that the state of a model with as many tensors as DeepSeek-V3 loads
// in seconds. A search through all tensors for each parameter would take minutes.
func TestStateOfManyTensors(t *testing.T) {
	const tensors = 44_500
	r, state := &store{}, OptimizerState{}
	for i := range tensors {
		name, shape := fmt.Sprintf("model.layers.%d.weight", i), []int64{1}
		r.parameters = append(r.parameters, parameter{name: name, shape: shape})
		state.Tensors = append(state.Tensors, safetensors.FromFloat32s(momentumName+"."+name, shape, []float32{float32(i)}))
	}
	slices.Reverse(state.Tensors)
	before := time.Now()
	values, err := state.values(r.parameters, momentumName, nil)
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(before); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
	for i, value := range values {
		if value[0] != float32(i) {
			t.Fatalf("parameter %d has the state of parameter %v", i, value[0])
		}
	}
	state.Tensors = state.Tensors[1:]
	if _, err := state.values(r.parameters, momentumName, nil); !errors.Is(err, errModel) {
		t.Errorf("a tensor is missing: error = %v, want errModel", err)
	}
}

// TestSavedMomentumIsAsOldAsItWas checks that a trainer resumed from a saved state sends the same
// result as without a restart, even if it missed steps before.
func TestSavedMomentumIsAsOldAsItWas(t *testing.T) {
	trainer, resumed := newTestTrainer(t), newTestTrainer(t)
	train := func(trainer *Trainer, step uint32) []byte {
		payload, _, err := trainer.Train(t.Context(), step, toyBatch(uint64(step)*4, uint64(step)*4+4), nil)
		if err != nil {
			t.Fatal(err)
		}
		return payload
	}
	apply := func(trainer *Trainer, step uint32, payloads ...[]byte) {
		if err := trainer.Apply(t.Context(), step, payloads, nil, true); err != nil {
			t.Fatal(err)
		}
	}
	apply(trainer, 1, train(trainer, 1))
	apply(trainer, 2)
	apply(trainer, 3)
	state, err := trainer.OptimizerState(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), OptimizerFile)
	if err := state.Write(path); err != nil {
		t.Fatal(err)
	}
	if state, err = ReadOptimizerState(path); err != nil || state.Step != 3 || state.Trained != 1 {
		t.Fatalf("state of step %d, trained in step %d, %v; want 3 and 1", state.Step, state.Trained, err)
	}
	model, err := trainer.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := resumed.Load(t.Context(), model); err != nil {
		t.Fatal(err)
	}
	if err := resumed.SetOptimizerState(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(train(trainer, 4), train(resumed, 4)) {
		t.Error("it sends something else")
	}
}
