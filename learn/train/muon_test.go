package train

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/learn/distro"
	"github.com/psyche-go/psyche/learn/model/weights"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
	"github.com/psyche-go/psyche/record/config"
)

// TestMuonReference compares Muon's steps with torch.optim.Muon
// (scripts/reference/muon_vectors.py).
func TestMuonReference(t *testing.T) {
	var reference struct {
		Cases []struct {
			WeightDecay float64 `json:"weight_decay"`
			Shape       []int64
			Parameter   []float32
			Steps       []struct {
				LR                  float64
				Gradient, Parameter []float32
			}
		}
	}
	engine := readVectors(t, "muon.json", &reference)
	for dtype, limit := range map[torch.DType]float64{torch.F32: 1e-4, torch.BF16: 0.15} {
		for _, c := range reference.Cases {
			t.Run(fmt.Sprint(dtype, c.Shape), func(t *testing.T) {
				err := engine.Do(t.Context(), false, func(s *torch.Scope) error {
					parameter, mean := s.FromFloat32s(c.Parameter, c.Shape...), s.Zeros(torch.F32, c.Shape...)
					before := c.Parameter
					for j, step := range c.Steps {
						gradient := s.FromFloat32s(step.Gradient, c.Shape...)
						if err := (muon{computes: dtype, device: torch.CPU}).step(s, parameter, gradient, mean, step.LR, c.WeightDecay); err != nil {
							return err
						}
						off, moved := 0.0, 0.0
						for k, got := range parameter.Float32s() {
							off += math.Pow(float64(got-step.Parameter[k]), 2)
							moved += math.Pow(float64(before[k]-step.Parameter[k]), 2)
						}
						if off = math.Sqrt(off / moved); !(off < limit) {
							t.Errorf("step %d: %.3g of a step elsewhere", j+1, off)
						}
						before = step.Parameter
						copy(parameter.Float32s(), step.Parameter)
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			})
		}
	}
}

// TestMuonMovesMatrices checks that Muon leaves embeddings, vectors and stacked biases to AdamW.
func TestMuonMovesMatrices(t *testing.T) {
	for name, test := range map[string]struct {
		shape []int64
		want  bool
	}{
		"model.embed_tokens.weight": {[]int64{8, 4}, false}, "model.norm.weight": {[]int64{4}, false},
		"model.layers.0.self_attn.q_proj.weight": {[]int64{4, 4}, true}, "model.layers.0.self_attn.q_proj.bias": {[]int64{4}, false},
		"model.layers.0.mlp.experts.gate_up_proj": {[]int64{3, 4, 8}, true}, "model.layers.0.mlp.experts.gate_up_proj_bias": {[]int64{3, 8}, false},
	} {
		if got := weights.Hidden(name, test.shape); got != test.want {
			t.Errorf("%s is moved by Muon: %t, want %t", name, got, test.want)
		}
	}
}

// TestOrthogonal checks that the singular values of the factor of wide, tall and stacked matrices
// are near 1, and that none exceeds the bound that audits use. So no chunk is longer than audits
// allow, whatever the matrix.
func TestOrthogonal(t *testing.T) {
	for x := 0.0; x <= muonLargest; x += 1e-4 {
		if y := polynomial[0]*x + polynomial[1]*x*x*x + polynomial[2]*x*x*x*x*x; y > muonLargest-0.03 || y < 0 {
			t.Fatalf("the polynomial is %v at %v", y, x)
		}
	}
	engine := torchtest.Engine(t)
	rapid.Check(t, func(r *rapid.T) {
		sizes := rapid.SampledFrom([][]int64{{6, 10}, {10, 6}, {8, 8}, {3, 4, 6}, {1, 5}, {5, 1}}).Draw(r, "shape")
		n := int64(1)
		for _, size := range sizes {
			n *= size
		}
		values := rapid.SliceOfN(rapid.Float32Range(-1, 1), int(n), int(n)).Draw(r, "values")
		scale := float32(math.Pow(10, float64(rapid.IntRange(-6, 6).Draw(r, "scale"))))
		for i := range values {
			values[i] *= scale
		}
		dtype := rapid.SampledFrom([]torch.DType{torch.F32, torch.BF16}).Draw(r, "type")
		err := engine.Do(t.Context(), false, func(s *torch.Scope) error {
			got := orthogonal(s.FromFloat32s(values, sizes...), dtype).To(torch.F32).Contiguous().Float32s()
			rows, columns := int(sizes[len(sizes)-2]), int(sizes[len(sizes)-1])
			for at := 0; at < len(got); at += rows * columns {
				if longest := norm([][]float32{got[at : at+rows*columns]}); longest > muonLargest*math.Sqrt(float64(min(rows, columns))) {
					return fmt.Errorf("a factor of %d × %d is %v long", rows, columns, longest)
				}
				for row := range rows { // a row is no longer than the largest singular value
					if longest := norm([][]float32{got[at+row*columns:][:columns]}); longest > muonLargest {
						return fmt.Errorf("a row is %v long", longest)
					}
				}
			}
			return nil
		})
		if err != nil {
			r.Fatal(err)
		}
	})
}

// TestMuonKeepsNoSquares checks that matrices have only one running mean, also in a saved state.
func TestMuonKeepsNoSquares(t *testing.T) {
	eachInner(t, func(t *testing.T, inner func(*Options)) {
		trainer := newLocalTrainer(t, inner)
		state, err := trainer.OptimizerState(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i, p := range trainer.parameters {
			squares := false
			for _, tensor := range state.Tensors {
				squares = squares || tensor.Name == secondMoment+"."+p.name
			}
			if squares == trainer.local().rounds.inner.byMuon(p) || squares != (trainer.local().rounds.inner.moments[1].tensors[i] != nil) {
				t.Errorf("%s: squares %v", p.name, squares)
			}
		}
	})
}

// TestMuonMovesNoFurther checks that the steps of a round move no chunk further than audits allow.
func TestMuonMovesNoFurther(t *testing.T) {
	trainer := newLocalTrainer(t, func(o *Options) {
		o.Optimizer.LocalSteps.InnerOptimizer, o.Optimizer.LocalSteps.WeightDecay = config.Muon, 0
	})
	furthest := 0.0
	for step := uint32(1); step <= 10; step++ {
		begun := cloneAll(trainer.weights())
		_, _, err := trainer.Train(t.Context(), step, toyBatch(0, 8), func(_ context.Context) error {
			for i, l := range trainer.local().residual.layouts {
				furthest = max(furthest, furthestChunk(l, begun[i], trainer.weights()[i])/trainer.replays().bounds.farthest(step, 0))
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := trainer.Apply(t.Context(), step, nil, nil, false); err != nil {
			t.Fatal(err)
		}
	}
	if !(furthest > 0.05 && furthest <= 1) {
		t.Errorf("chunks moved %v of the limit", furthest)
	}
}

// furthestChunk returns the largest root mean square of the distances that the weights of a chunk
// moved.
func furthestChunk(l distro.Layout, from, to []float32) (furthest float64) {
	for c := range l.Chunks() {
		before, after := l.Chunk(from, c, nil), l.Chunk(to, c, nil)
		furthest = max(furthest, distance(before, after)/math.Sqrt(float64(l.ChunkSize())))
	}
	return furthest
}

// TestTornStepsAreMadeAgain checks that a step that is interrupted between large matrices leaves
// the weights of the round unchanged, and that an interrupted replay restarts from its first step.
func TestTornStepsAreMadeAgain(t *testing.T) {
	largest := muonAtOnce
	muonAtOnce = 0
	t.Cleanup(func() { muonAtOnce = largest })
	a := newAuditedLocal(t, func(o *Options) { o.Optimizer.LocalSteps.InnerOptimizer = config.Muon })
	batch := toyBatch(8, 16)
	a.round(1, batch, true, nil)
	x := audit.Recomputation{Step: 1, Trainer: [32]byte{1}, Chunks: a.opened()}
	want, err := a.verifier.Recompute(t.Context(), x, batch)
	if err != nil {
		t.Fatal(err)
	}
	before, torn := digest(t, a.verifier), 0
	for looks := 1; ; looks++ {
		got, err := a.verifier.Recompute(&stopping{t.Context(), looks}, x, batch)
		if digest(t, a.verifier) != before {
			t.Fatal("a replay that was stopped changed the model")
		}
		if errors.Is(err, errTorn) {
			if torn++; a.verifier.keeper.kept != nil {
				t.Fatal("half a step is kept")
			}
			continue
		}
		if err == nil {
			if !reflect.DeepEqual(got, want) || torn == 0 {
				t.Errorf("after %d torn steps it came elsewhere", torn)
			}
			return
		}
	}
}

// TestBrokenStepsAreNotKept checks that a replay does not continue from a step that fails half way
// while the caller cancels the replay.
func TestBrokenStepsAreNotKept(t *testing.T) {
	a := newAuditedLocal(t, func(o *Options) { o.Optimizer.LocalSteps.InnerOptimizer = config.Muon })
	batch := toyBatch(8, 16)
	a.round(1, batch, true, nil)
	x := audit.Recomputation{Step: 1, Trainer: [32]byte{1}, Chunks: a.opened()}
	a.verifier.local().rounds.inner.muon.device = torch.Device(7) // a device that does not exist
	stopped := false
	for looks := 1; ; looks++ {
		ctx := &stopping{t.Context(), looks}
		_, err := a.verifier.Recompute(ctx, x, batch)
		if errors.Is(err, context.Canceled) {
			stopped = true
			continue
		}
		if err == nil || a.verifier.keeper.kept != nil || !stopped {
			t.Errorf("stopped before %v, error %v, kept %v", stopped, err, a.verifier.keeper.kept != nil)
		}
		if ctx.looks > 0 {
			return
		}
	}
}
