package strict_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/learn/distro/cuda/cudatest"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
	"github.com/psyche-go/psyche/learn/torch/torchtest/strict"
)

// operation computes something from tensors on an engine: a result, and gradients of the inputs.
type operation struct {
	shapes [][]int64 // of the inputs; the first has the compute type, all following are f32
	of     func(s *torch.Scope, in []*torch.Tensor) *torch.Tensor
}

// operations returns one operation for each kernel. columns need not be a multiple of 4.
func operations(rows, columns, heads int64) map[string]operation {
	ids := make([]int32, rows)
	targets := make([]int32, rows)
	for i := range ids {
		ids[i], targets[i] = int32(i*i%5), int32(i%3)
	}
	targets[0] = torch.IgnoreTarget
	return map[string]operation{
		"norm": {[][]int64{{rows, columns}, {columns}}, func(_ *torch.Scope, in []*torch.Tensor) *torch.Tensor {
			return in[0].RMSNorm(in[1], 1e-5)
		}},
		"rotate": {[][]int64{{1, rows, heads, 2 * columns}, {rows, columns}}, func(_ *torch.Scope, in []*torch.Tensor) *torch.Tensor {
			angles := in[1].Detach()
			return in[0].RoPE(angles.Cos(), angles.Sin())
		}},
		"feed-forward": {[][]int64{{rows, columns}, {columns}, {3 * columns, columns}, {3 * columns, columns}, {columns, 3 * columns}},
			func(_ *torch.Scope, in []*torch.Tensor) *torch.Tensor {
				return in[0].FeedForwardBlock(in[1], in[2], in[3], in[4], 1e-5, false)
			}},
		"attention": {[][]int64{{1, rows, 2 * columns}, {2 * columns}, {2 * heads * columns, 2 * columns}, {2 * columns, 2 * columns}, {2 * columns, 2 * columns},
			{2 * columns, 2 * heads * columns}, {rows, columns}}, func(_ *torch.Scope, in []*torch.Tensor) *torch.Tensor {
			w := torch.AttentionWeights{Norm: in[1], Query: in[2], Key: in[3], Value: in[4], Output: in[5]}
			angles := in[6].Detach()
			return in[0].AttentionBlock(w, angles.Cos(), angles.Sin(), 2*columns, 0.5, 1e-5, false)
		}},
		"cross-entropy": {[][]int64{{rows, columns}, {columns + 3, columns}}, func(s *torch.Scope, in []*torch.Tensor) *torch.Tensor {
			return in[0].LinearCrossEntropyShare(in[1], s.FromInt32s(targets, rows), 0.3)
		}},
		"embedding": {[][]int64{{1}, {5, columns}}, func(s *torch.Scope, in []*torch.Tensor) *torch.Tensor {
			return in[1].Embed(s.FromInt32s(ids, rows), in[0].DType())
		}},
	}
}

// runner is a *testing.T or a *rapid.T.
type runner interface {
	Context() context.Context
	Fatal(args ...any)
}

// results runs an operation on an engine and returns its result and the gradients of its inputs. The
// backward pass runs twice, so that the gradients of weights add up.
func (o operation) results(t runner, e *torch.Engine, dtype torch.DType, values [][]float32) (all [][]float32) {
	all, err := o.try(t.Context(), e, dtype, values)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (o operation) try(ctx context.Context, e *torch.Engine, dtype torch.DType, values [][]float32) (all [][]float32, err error) {
	return all, e.Do(ctx, true, func(s *torch.Scope) error {
		in := make([]*torch.Tensor, len(values))
		for i, v := range values {
			if in[i] = s.FromFloat32s(v, o.shapes[i]...); i == 0 {
				in[i] = in[i].To(dtype)
			}
			in[i] = in[i].Detach().SetRequiresGrad(true)
		}
		for range 2 {
			y := o.of(s, in)
			if len(y.Shape()) == 0 {
				y.Backward()
			} else {
				y.To(torch.F32).Mul(y.To(torch.F32).Detach().AddScalar(0.5)).Sum().Backward()
			}
			all = [][]float32{y.Detach().CopyFloat32s()}
		}
		for _, x := range in {
			if grad := x.Grad(); grad != nil {
				all = append(all, grad.Contiguous().CopyFloat32s())
			}
		}
		return nil
	})
}

// TestKernels compares the kernels with the loops for the CPU. Only the order of sums differs.
func TestKernels(t *testing.T) {
	if !strict.Start(t) {
		return
	}
	strict.UseKernels(t)
	compareKernels(t)
}

// TestKernelsOnADevice is TestKernels on a GPU, with the sizes of real models too.
func TestKernelsOnADevice(t *testing.T) {
	strict.UseKernelsOfGPU(t)
	compareKernels(t)
	there, here := engine(t, 0), torchtest.Engine(t)
	for _, dtype := range []torch.DType{torch.F32, torch.BF16} {
		if err := compare(t, there, here, dtype, operations(1030, 96, 4), rand.New(rand.NewPCG(7, 8))); err != nil {
			t.Error(dtype, err)
		}
	}
}

// compareKernels compares device 0 with the CPU in random shapes.
func compareKernels(t *testing.T) {
	t.Helper()
	there, here := engine(t, 0), torchtest.Engine(t)
	rapid.Check(t, func(t *rapid.T) {
		rows, columns, heads := rapid.Int64Range(2, 12).Draw(t, "rows"), rapid.Int64Range(4, 16).Draw(t, "columns"), rapid.Int64Range(1, 3).Draw(t, "heads")
		if rapid.Bool().Draw(t, "aligned") {
			columns *= 4
		}
		dtype := rapid.SampledFrom([]torch.DType{torch.F32, torch.BF16}).Draw(t, "type")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		if err := compare(t, there, here, dtype, operations(rows, columns, heads), random); err != nil {
			t.Fatal(err)
		}
	})
}

// compare runs operations on two engines, and returns an error if results differ by more than rounding
// explains.
func compare(t runner, there, here *torch.Engine, dtype torch.DType, all map[string]operation, random *rand.Rand) error {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		o, limit := all[name], 1e-4
		if dtype == torch.BF16 {
			limit = 0.005
		}
		values := o.inputs(random)
		got, want := o.results(t, there, dtype, values), o.results(t, here, dtype, values)
		if name == "attention" || name == "feed-forward" {
			// Their products round differently too, and small gradients cancel. So compare all results together.
			got, want, limit = [][]float32{slices.Concat(got...)}, [][]float32{slices.Concat(want...)}, 10*limit
		}
		for i := range want {
			if d := distance(got[i], want[i]); !(d < limit) {
				return fmt.Errorf("%s: result %d of %v differs by %.1e", name, i, o.shapes, d)
			}
		}
	}
	return nil
}

// manyRows is more rows than the backward pass of a norm has blocks.
const manyRows = 700

func TestKernelOfManyRows(t *testing.T) {
	if !strict.Start(t) {
		return
	}
	strict.UseKernels(t)
	there, here := engine(t, 0), torchtest.Engine(t)
	o := operations(manyRows, 8, 1)["norm"]
	values := o.inputs(rand.New(rand.NewPCG(5, 6)))
	got, err := o.try(t.Context(), there, torch.F32, values)
	if err != nil {
		t.Fatal(err)
	}
	want, err := o.try(t.Context(), here, torch.F32, values)
	if err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if d := distance(got[i], want[i]); !(d < 1e-5) {
			t.Errorf("result %d differs by %.1e", i, d)
		}
	}
}

// TestKernelNames checks that the kernels run, and not libtorch's operations in their place.
func TestKernelNames(t *testing.T) {
	if !strict.Start(t) {
		return
	}
	strict.UseKernels(t)
	e := engine(t, 0)
	for dtype, suffix := range map[torch.DType]string{torch.F32: "f32", torch.BF16: "bf16"} {
		strict.Reset()
		for _, o := range operations(5, 8, 2) {
			o.results(t, e, dtype, o.inputs(rand.New(rand.NewPCG(1, 2))))
		}
		launched := strict.Operations()
		for _, name := range []string{"norm_forward", "norm_backward", "rotate", "swiglu", "swiglu_backward", "cross_entropy", "embed", "embed_gradient"} {
			if name = "psyche_" + name + "_" + suffix; launched[name] == 0 {
				t.Errorf("%s was not launched", name)
			}
		}
	}
}

// inputs returns numbers from −0.5 to 0.5 for each input.
func (o operation) inputs(random *rand.Rand) [][]float32 {
	values := make([][]float32, len(o.shapes))
	for i, shape := range o.shapes {
		n := int64(1)
		for _, size := range shape {
			n *= size
		}
		values[i] = make([]float32, n)
		for j := range values[i] {
			values[i][j] = random.Float32() - 0.5
		}
	}
	return values
}

// runAll runs all operations once in each type, and returns the first error.
func runAll(t *testing.T, e *torch.Engine) error {
	t.Helper()
	for _, dtype := range []torch.DType{torch.F32, torch.BF16} {
		all := operations(9, 8, 2)
		all["norm of many rows"] = operations(manyRows, 8, 2)["norm"]
		for name, o := range all {
			if _, err := o.try(t.Context(), e, dtype, o.inputs(rand.New(rand.NewPCG(3, 4)))); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// TestKernelsHaveNoRaces checks all accesses of the kernels. Without a barrier, the check must find a
// race.
func TestKernelsHaveNoRaces(t *testing.T) {
	if !strict.Start(t) {
		return
	}
	if testing.Short() {
		t.Skip("-short: the checks take long")
	}
	e := engine(t, 0)
	for _, removed := range []int{-1, 0, 1, 5} {
		t.Run(fmt.Sprint("without barrier ", removed), func(t *testing.T) {
			library, err := cudatest.BuildChecked(t.TempDir(), func(file, text string) string {
				const barrier = "__syncthreads();"
				if parts := strings.Split(text, barrier); file == "pieces.cu" && removed >= 0 {
					return strings.Join(parts[:removed+1], barrier) + strings.Join(parts[removed+1:], barrier)
				}
				return text
			})
			if err != nil {
				t.Fatal(err)
			}
			strict.UseKernelsOf(t, library)
			if err := runAll(t, e); (err != nil) != (removed >= 0) {
				t.Errorf("error = %v", err)
			}
		})
	}
}

// TestFailedLaunch checks the error of an operation whose kernel cannot be launched.
func TestFailedLaunch(t *testing.T) {
	if !strict.Start(t) {
		return
	}
	strict.UseKernels(t)
	e := engine(t, 0)
	t.Setenv(cudatest.EnvFailure, "cuLaunchKernel 700")
	if failed := (*torch.Error)(nil); !errors.As(runAll(t, e), &failed) || !strings.Contains(failed.Message, "CUDA_ERROR_ILLEGAL_ADDRESS") {
		t.Errorf("error = %v, want the driver's", failed)
	}
	t.Setenv(cudatest.EnvFailure, "")
	if err := runAll(t, e); err != nil {
		t.Error(err)
	}
}
