//go:build linux

package train

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/distro/cuda"
	"github.com/psyche-go/psyche/learn/distro/cuda/cudatest"
	"github.com/psyche-go/psyche/learn/torch/torchtest/strict"
)

// TestDivide checks that each tensor has one owner, that equal models are divided equally, and that the loads of two
// devices differ by the largest tensor at most.
func TestDivide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		elements := rapid.SliceOfN(rapid.IntRange(1, 1000), 1, 50).Draw(t, "elements")
		devices := make([]*apart, rapid.IntRange(1, 8).Draw(t, "devices"))
		for d := range devices {
			devices[d] = &apart{}
		}
		o := divide(devices, elements)
		loads, seen := make([]int, len(devices)), 0
		for d, tensors := range o.tensors {
			if !slices.IsSorted(tensors) {
				t.Errorf("device %d: tensors %v", d, tensors)
			}
			for _, i := range tensors {
				if o.owners[i] != d {
					t.Errorf("tensor %d: owners %d and %d", i, d, o.owners[i])
				}
				loads[d] += elements[i]
				seen++
			}
		}
		if seen != len(elements) || slices.Max(loads)-slices.Min(loads) > slices.Max(elements) || loads[0] < slices.Max(elements) {
			t.Errorf("%v: %d tensors have owners, with loads %v", elements, seen, loads)
		}
		if again := divide(devices, slices.Clone(elements)); !slices.Equal(again.owners, o.owners) {
			t.Errorf("owners %v, then %v", o.owners, again.owners)
		}
	})
}

// TestErrorOfAll checks that the error of a call on several devices hides no failure, and that it differs if a device has done its part.
func TestErrorOfAll(t *testing.T) {
	for name, test := range map[string]struct {
		failures        []error
		memory, failure bool
		partly          bool
	}{
		"none":              {failures: []error{nil, nil}},
		"one lacks memory":  {[]error{nil, cuda.ErrMemory}, true, false, true},
		"all lack memory":   {[]error{cuda.ErrMemory, cuda.ErrMemory}, true, false, false},
		"one fails":         {[]error{errTested, nil}, false, true, false},
		"both in their way": {[]error{cuda.ErrMemory, errTested}, false, true, false},
	} {
		err := ofAll(test.failures)
		if errors.Is(err, cuda.ErrMemory) != test.memory || errors.Is(err, errTested) != test.failure || errors.Is(err, errPartly) != test.partly {
			t.Errorf("%s: error = %v", name, err)
		}
	}
}

// runs trains the same batches on members, and checks in each round that results, openings, references and weights have
// the same bits. Some results do not count, are rolled back, or are applied by a guess first.
func runs(t *testing.T, rounds uint32, sequences uint64, members ...*Trainer) {
	t.Helper()
	batchOf := func(step uint32) data.Batch { return toyBatch(uint64(step)*5, uint64(step)*5+sequences) }
	first := members[0]
	var applied []audit.Applied
	var waiting [][]byte
	for step := uint32(1); step <= rounds; step++ {
		var payload []byte
		for i, member := range members {
			own, _, err := member.Train(t.Context(), step, batchOf(step), func(context.Context) error {
				if member.history != nil && step%7 == 4 {
					return member.SetAttested(step-1, false)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 {
				payload = own
			} else if string(own) != string(payload) {
				t.Fatalf("step %d: member %d has another result", step, i)
			}
		}
		if first.history != nil {
			equalAnswers(t, members, func(member *Trainer) (any, error) { return member.Open(step, []uint32{0, 3, uint32(len(payload) % 7)}) })
		}
		if waiting = append(waiting, payload); len(waiting) < int(first.ApplyLag()) {
			continue
		}
		at := step + 1 - first.ApplyLag()
		for _, member := range members {
			if member.speculates && step%3 == 0 {
				if _, err := member.Speculate(t.Context(), at, nil, nil, false); err != nil {
					t.Fatal(err)
				}
			}
			if err := member.Apply(t.Context(), at, waiting[:1], nil, step%5 != 2); err != nil {
				t.Fatal(err)
			}
		}
		applied, waiting = slices.Insert(applied, 0, audit.Applied{Step: at, Payloads: waiting[:1:1]}), waiting[1:]
		if step%4 == 3 {
			equalAnswers(t, members, func(member *Trainer) (any, error) { return digest(t, member), nil })
		}
		if first.history != nil && step%10 == 6 {
			x := audit.Recomputation{
				Step: step - 1, Trainer: first.key, Weights: step - 2, Chunks: []uint32{0, 2}, Precision: audit.F32, Applied: applied[:2],
				Shaken: first.ValueBits() > 0,
			}
			equalAnswers(t, members, func(member *Trainer) (any, error) { return member.Recompute(t.Context(), x, batchOf(step-1)) })
		}
	}
	for i, member := range members {
		if digest(t, member) != digest(t, first) {
			t.Errorf("member %d has other weights", i)
		}
	}
}

// equalAnswers calls ask for each member, and checks that the answers are equal.
func equalAnswers(t *testing.T, members []*Trainer, ask func(member *Trainer) (any, error)) {
	t.Helper()
	var want any
	for i, member := range members {
		got, err := ask(member)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			want = got
		} else if !reflect.DeepEqual(got, want) {
			t.Fatalf("member %d: another answer", i)
		}
	}
}

// divided fails the test unless an optimizer is divided among n devices.
func divided(t *testing.T, member *Trainer, n int) {
	t.Helper()
	on := member.parallel.resides()
	if on == nil || len(on.devices) != n || slices.ContainsFunc(on.tensors, func(tensors []int) bool { return len(tensors) == 0 }) {
		t.Fatalf("the optimizer is not divided among %d devices", n)
	}
}

// shardedKinds are optimizers of members with several devices.
var shardedKinds = []struct {
	name  string
	local bool
	with  func(o *Options)
}{
	{"distro", false, func(*Options) {}},
	{"distro, audited", false, auditedRun},
	{"distro, looking ahead", false, lookingAhead},
	{"adamw", true, func(*Options) {}},
	{"adamw, lag", true, func(o *Options) { o.Optimizer.LocalSteps.ApplyLag = 2 }},
	{"adamw, audited", true, auditedRun},
	{"muon, audited", true, func(o *Options) {
		o.Optimizer.LocalSteps.InnerOptimizer = "muon"
		auditedRun(o)
	}},
}

func create(t *testing.T, local bool, change ...func(o *Options)) *Trainer {
	t.Helper()
	if local {
		return newLocalTrainer(t, change...)
	}
	return newTestTrainer(t, change...)
}

// TestShardsTrainTheSame compares a member whose optimizer is divided among three devices with a member whose three
// devices compute gradients for an optimizer on the CPU, and continues from the state of one on the other.
func TestShardsTrainTheSame(t *testing.T) {
	for _, kind := range shardedKinds {
		t.Run(kind.name, func(t *testing.T) {
			kernels, _ := withKernels(t, nil)
			small := func(o *Options) {
				if o.MicroBatch = 1; o.Audited && !kind.local { // undoing a decay on a device rounds otherwise
					d := *o.Optimizer.Distro
					d.WeightDecay, o.Optimizer.Distro = 0, &d
				}
			}
			here := create(t, kind.local, kind.with, small, onDevices(3))
			there := create(t, kind.local, kind.with, small, onDevices(3), kernels)
			divided(t, there, 3)
			runs(t, 30, 4, here, there)
			divided(t, there, 3)
			if there.history != nil || there.ApplyLag() > 1 {
				return
			}
			state, err := there.OptimizerState(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if want, err := here.OptimizerState(t.Context()); err != nil || !reflect.DeepEqual(state.Tensors, want.Tensors) {
				t.Errorf("another state (%v)", err)
			}
			model, err := there.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			next := results(t, 31, there)[0]
			for _, with := range []func(o *Options){kernels, func(*Options) {}} {
				again := create(t, kind.local, kind.with, small, onDevices(3), with, func(o *Options) { o.Model = model })
				if err := again.SetOptimizerState(t.Context(), state); err != nil {
					t.Fatal(err)
				}
				if string(results(t, 31, again)[0]) != string(next) {
					t.Error("another result after a restart")
				}
			}
		})
	}
}

// TestStrictShardsTrainTheSame compares a member on one strict device with a member on two. Batches have
// one sequence, so that gradients have the same bits.
func TestStrictShardsTrainTheSame(t *testing.T) {
	if !strict.Start(t) {
		return
	}
	for _, kind := range shardedKinds {
		if kind.name != "distro, audited" && kind.name != "adamw, audited" {
			continue
		}
		t.Run(kind.name, func(t *testing.T) {
			small := func(o *Options) {
				o.Model = snapshotOf(t, strings.NewReplacer(`"num_hidden_layers":2`, `"num_hidden_layers":1`, `"hidden_size":32`, `"hidden_size":16`,
					`"intermediate_size":64`, `"intermediate_size":16`).Replace(toyConfig))
			}
			there := create(t, kind.local, kind.with, small, onStrict(t, 2))
			runs(t, 8, 1, create(t, kind.local, kind.with, small, onStrict(t, 1)), there)
			divided(t, there, 2)
		})
	}
}

// TestStrictShardsFindFaults makes mistakes with two strict devices: a kernel gets the momentum of a tensor that is on the
// other device, and nothing waits for kernels, so that a device copies old weights of the other. Both must be found:
// the process dies, the round fails, or the running means differ.
func TestStrictShardsFindFaults(t *testing.T) {
	const variable = "PSYCHE_TEST_MISPLACED"
	if strict.Inside() {
		strict.Start(t)
		member := newLocalTrainer(t, onStrict(t, 2), func(o *Options) { o.MicroBatch, o.Optimizer.LocalSteps.InnerSteps = 1, 2 })
		divided(t, member, 2)
		if os.Getenv(variable) != "" {
			misplace(t, member)
		}
		results(t, 1, member)
		means, err := member.local().rounds.inner.all()
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("means %x\n", sha256.Sum256(fmt.Append(nil, means)))
		return
	}
	means := func(variables ...string) string {
		program := strict.Command(t, t.Name())
		program.Env = append(program.Env, variables...)
		output, err := program.CombinedOutput()
		if found := regexp.MustCompile("means [0-9a-f]+").Find(output); err == nil && found != nil {
			return string(found)
		}
		t.Logf("%v: %v", variables, err)
		return ""
	}
	right := means()
	if right == "" {
		t.Fatal("no result without a fault")
	}
	for _, fault := range []string{variable + "=1", cudatest.EnvFailure + "=cuCtxSynchronize 0,psyche_strict_follow 0"} {
		if means(fault) == right {
			t.Errorf("%s: not found", fault)
		}
	}
}

// misplace exchanges the sums of two tensors of the same shape that are on different devices.
func misplace(t *testing.T, member *Trainer) {
	t.Helper()
	on, sums := member.parallel.resides(), member.local().residual.unsent.(*resident).now
	for i, a := range member.parameters {
		for j, b := range member.parameters {
			if on.owners[i] < on.owners[j] && slices.Equal(a.shape, b.shape) {
				sums[i], sums[j] = sums[j], sums[i]
				return
			}
		}
	}
	t.Fatal("no tensors of the same shape on different devices")
}
