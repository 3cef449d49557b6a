//go:build linux

package fit_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/distro/cuda"
	"github.com/psyche-go/psyche/learn/distro/cuda/cudatest"
	"github.com/psyche-go/psyche/learn/memory/fit"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/learn/torch/torchtest/strict"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/record/config"
)

// short is the length of the sequences on a strict device, which is slow.
const short = 64

// onDevice are the trainings whose peaks on a strict device the test compares with predictions.
var onDevice = []struct {
	name      string
	config    string
	optimizer config.Optimizer
	audited   bool
	recompute bool
	rows      int
	devices   int
	compute   torch.DType
}{
	{name: "DisTrO, embeddings", config: twoHeads(1024, 96, 3), optimizer: distro, rows: 1},
	{name: "DisTrO, recomputed, 4 sequences", config: twoHeads(256, 96, 3), optimizer: distro, recompute: true, rows: 4},
	{name: "DisTrO, audited, 2 devices", config: twoHeads(256, 96, 3), optimizer: distro, audited: true, rows: 1, devices: 2},
	{name: "DisTrO, 2 devices", config: twoHeads(256, 96, 3), optimizer: distro, rows: 1, devices: 2},
	{name: "AdamW, audited, 2 devices", config: twoHeads(256, 96, 3), optimizer: local("", 0), audited: true, rows: 1, devices: 2},
	{name: "AdamW, audited", config: twoHeads(256, 96, 3), optimizer: local("", 0), audited: true, rows: 1},
	{name: "Muon, outer momentum, embeddings", config: twoHeads(1024, 96, 3), optimizer: local(config.Muon, 0.5), rows: 1},
	{name: "DisTrO, audited, lag 2", config: twoHeads(256, 96, 3), optimizer: lagging(distro), audited: true, rows: 1},
	{name: "Muon", config: twoHeads(256, 96, 3), optimizer: local(config.Muon, 0), rows: 1},
	{name: "DisTrO, layers", config: twoHeads(256, 96, 3), optimizer: distro, rows: 1},
	{name: "DisTrO, bf16, embeddings", config: twoHeads(1024, 96, 3), optimizer: distro, rows: 1, compute: torch.BF16},
}

// twoHeads is shape with two heads. The strict device's libtorch may keep all scores of attention, which predictions do
// not contain.
func twoHeads(vocabulary, hidden, layers int) string {
	return strings.NewReplacer(`heads":8`, `heads":2`).Replace(shape(vocabulary, hidden, layers))
}

func lagging(o config.Optimizer) config.Optimizer {
	d := *o.Distro
	d.ApplyLag = 2
	return config.Optimizer{Distro: &d}
}

func local(inner string, momentum float64) config.Optimizer {
	return config.Optimizer{LocalSteps: &config.LocalSteps{
		InnerSteps: 1, Eps: 1e-8, OuterLR: 1, CompressionTopK: 8, CompressionChunk: 64, ValueBits: 4, ErrorDecay: 0.9,
		InnerOptimizer: inner, OuterMomentum: momentum,
	}}
}

// TestDevicePeak compares the prediction for each training with the peak of a strict device's memory.
func TestDevicePeak(t *testing.T) {
	if !strict.Inside() {
		folder := t.TempDir()
		driver := cudatest.Library(t)
		if err := os.Symlink(driver, filepath.Join(folder, "libcuda.so.1")); err != nil {
			t.Fatal(err)
		}
		program := strict.Command(t, t.Name())
		program.Env = append(program.Env, cuda.EnvNVRTC+"="+driver, "LD_LIBRARY_PATH="+folder+":"+os.Getenv("LD_LIBRARY_PATH"))
		program.Stdout, program.Stderr = os.Stdout, os.Stderr
		if err := program.Run(); err != nil {
			t.Error(err)
		}
		return
	}
	strict.Start(t)
	for _, m := range onDevice {
		t.Run(m.name, func(t *testing.T) {
			of, err := model.Describe([]byte(m.config))
			if err != nil {
				t.Fatal(err)
			}
			o := train.Options{
				Optimizer: m.optimizer, LRSchedule: config.LRSchedule{Constant: &config.ConstantLR{BaseLR: 1e-3}},
				Compute: model.Options{Recompute: m.recompute, Compute: m.compute}, MicroBatch: m.rows, Threads: 1, Audited: m.audited,
			}
			for d := range max(m.devices, 1) {
				o.Devices = append(o.Devices, torch.Device(d))
			}
			before := strict.Read().Used
			made := trainer(t, o, m.config)
			strict.Reset()
			rounds(t, made, 2*m.rows*len(o.Devices), m.audited)
			peak := strict.Read().Peak
			training := fit.Of(o, of, short)
			needs := training.Needs()
			for d, want := range []uint64{needs.Device, needs.Further}[:len(o.Devices)] {
				got := float64(peak[d] - before[d])
				quotient := float64(want) / got
				t.Logf("device %d: %.2f MB predicted, peak %.2f MB: %.3f", d, float64(want)/1e6, got/1e6, quotient)
				if quotient < 0.9 || quotient > 1.1 {
					t.Errorf("prediction / peak = %.3f of %+v", quotient, training.Parts())
				}
			}
		})
	}
}

// rounds trains two rounds, with speculation or audits. Each device computes two micro-batches in a round, because it
// has all gradients only from the second micro-batch on.
func rounds(t *testing.T, made *train.Trainer, rows int, audited bool) {
	t.Helper()
	batch := data.Batch{ID: assign.BatchID{Start: 0, End: uint64(rows)}}
	for range rows {
		sequence := make([]int32, short+1)
		for j := range sequence {
			sequence[j] = int32(j % 256)
		}
		batch.Sequences = append(batch.Sequences, sequence)
	}
	var applied []audit.Applied
	lag := made.ApplyLag()
	var waiting [][]byte
	for step := uint32(1); step <= 2; step++ {
		payload, _, err := made.Train(t.Context(), step, batch, nil)
		if err != nil {
			t.Fatal(err)
		}
		if waiting = append(waiting, payload); uint32(len(waiting)) < lag {
			continue
		}
		at := step + 1 - lag
		if lag == 1 {
			if _, err := made.Speculate(t.Context(), at, waiting[:1], nil, true); err != nil {
				t.Fatal(err)
			}
		}
		if err := made.Apply(t.Context(), at, waiting[:1], nil, true); err != nil {
			t.Fatal(err)
		}
		applied, waiting = append([]audit.Applied{{Step: at, Payloads: waiting[:1:1]}}, applied...), waiting[1:]
	}
	if !audited {
		return
	}
	x := audit.Recomputation{Step: 1, Chunks: []uint32{0}, Precision: made.Precisions()[0], Applied: applied}
	if _, err := made.Recompute(t.Context(), x, batch); err != nil {
		t.Fatal(err)
	}
}
