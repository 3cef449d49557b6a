package memory

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/record/config"
)

func distro(lag uint8, signs bool) config.Optimizer {
	return config.Optimizer{Distro: &config.Distro{CompressionTopK: 8, CompressionChunk: 64, Quantize1Bit: signs, ApplyLag: lag}}
}

// TestRun checks the needs of runs that the CPU computes, without micro batches. Sizes of memory and disk are in copies
// of the weights.
func TestRun(t *testing.T) {
	muon := config.Optimizer{LocalSteps: &config.LocalSteps{InnerOptimizer: config.Muon}}
	lookahead := config.Optimizer{Distro: &config.Distro{ApplyLag: 2, Lookahead: true}}
	for name, test := range map[string]struct {
		optimizer    config.Optimizer
		parameters   uint64
		keep         int
		memory, disk uint64
		result       uint64
	}{
		"signs":                {distro(1, true), 1 << 20, Kept, 5, 5, (1<<20)/4096*8*13/8 + codec.HeaderSize},
		"no speculation":       {distro(2, true), 1 << 20, Kept, 4, 5, (1<<20)/4096*8*13/8 + codec.HeaderSize},
		"no copy that big":     {distro(1, true), 1 << 30, -1, 4, 0, (1<<30)/4096*8*13/8 + codec.HeaderSize},
		"large, on the disk":   {distro(1, true), 1 << 30, Kept, 3, 5, (1<<30)/4096*8*13/8 + codec.HeaderSize},
		"values":               {distro(1, false), 1 << 20, 0, 5, 3, (1<<20)/4096*8*44/8 + codec.HeaderSize},
		"large, looking ahead": {lookahead, 1 << 30, Kept, 4, 5, 0},
		"local steps":          {config.Optimizer{LocalSteps: &config.LocalSteps{}}, 1 << 20, 1, 7, 5, 0},
		"outer momentum":       {config.Optimizer{LocalSteps: &config.LocalSteps{OuterMomentum: 0.9}}, 1 << 20, 1, 8, 6, 0},
		"only matrices":        {muon, 1 << 20, 1, 6, 4, 0},
		"another optimizer":    {config.Optimizer{}, 1 << 20, 1, 4, 3, 0},
	} {
		weights := Value * test.parameters
		run := Training{Model: Model{Parameters: test.parameters, Matrices: test.parameters}, Optimizer: test.optimizer, Keep: test.keep}
		want := Bytes{Model: weights, Memory: test.memory * weights, Disk: test.disk * weights, Result: test.result}
		if got := run.Needs().Bytes; got != want {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
		run.Audited = true
		want.Memory += weights
		if test.keep >= 0 { // the optimizer's state is not saved
			want.Disk = (uint64(max(test.keep, 1)) + 1) * weights
		}
		if got := run.Needs().Bytes; got != want {
			t.Errorf("%s, with audits: %+v, want %+v", name, got, want)
		}
	}
}

// TestDevice checks the bytes per parameter on devices, without micro batches, and the main memory next to them.
func TestDevice(t *testing.T) {
	const large = 1 << 30 // parameters
	local := func(inner string) config.Optimizer {
		return config.Optimizer{LocalSteps: &config.LocalSteps{InnerOptimizer: inner}}
	}
	for name, test := range map[string]struct {
		training              Training
		host, device, further uint64
	}{
		"DisTrO in bf16":          {Training{Optimizer: distro(1, true), Batch: Batch{TwoBytes: true, Devices: 1}}, 4, 14, 0},
		"DisTrO in f32":           {Training{Optimizer: distro(1, true), Batch: Batch{Devices: 1}}, 4, 12, 0},
		"audited":                 {Training{Optimizer: distro(1, true), Audited: true, Batch: Batch{TwoBytes: true, Devices: 1}}, 4, 18, 0},
		"local steps":             {Training{Optimizer: local(""), Batch: Batch{TwoBytes: true, Devices: 1}}, 4, 26, 0},
		"local steps, audited":    {Training{Optimizer: local(""), Audited: true, Batch: Batch{Devices: 1}}, 4, 28, 0},
		"Muon":                    {Training{Optimizer: local(config.Muon), Batch: Batch{TwoBytes: true, Devices: 1}}, 4, 22, 0},
		"AdamW":                   {Training{Optimizer: config.Optimizer{AdamW: &config.AdamW{}}, Alone: true, Batch: Batch{TwoBytes: true, Devices: 1}}, 4, 18, 0},
		"two devices":             {Training{Optimizer: distro(1, true), Batch: Batch{TwoBytes: true, Devices: 2}}, 4, 12, 12},
		"two devices, audited":    {Training{Optimizer: distro(1, true), Audited: true, Batch: Batch{Devices: 2}}, 4, 12, 12},
		"local steps on four":     {Training{Optimizer: local(""), Batch: Batch{TwoBytes: true, Devices: 4}}, 4, 14, 14},
		"AdamW on two":            {Training{Optimizer: config.Optimizer{AdamW: &config.AdamW{}}, Alone: true, Batch: Batch{Devices: 2}}, 4, 16, 8},
		"several groups of a CPU": {Training{Optimizer: distro(1, true), Batch: Batch{Data: 3}}, 24, 0, 0},
		"layers in groups":        {Training{Optimizer: distro(1, true), Batch: Batch{Tensor: 2}}, 16, 0, 0},
	} {
		test.training.Model = Model{Parameters: large, Matrices: large}
		n := test.training.Needs()
		if n.Memory != test.host*large || n.Device != test.device*large || n.Further != test.further*large {
			t.Errorf("%s: %d, %d and %d bytes per parameter, want %+v", name, n.Memory/large, n.Device/large, n.Further/large, test)
		}
	}
	wide := Training{Model: Model{Parameters: large, Largest: large / 2}, Optimizer: distro(1, true), Batch: Batch{TwoBytes: true, Devices: 5}}
	if n := wide.Needs(); n.Device != 12*large || n.Further != 10*large+large/2 {
		t.Errorf("with half of the parameters in a tensor: %+v", n)
	}
	small := Training{Model: Model{Parameters: 1 << 20}, Optimizer: distro(1, true), Batch: Batch{Devices: 1}}
	if n := small.Needs(); n.Device != 16<<20 || n.Memory != 8<<20 || n.LeastDevice != 12<<20 || n.LeastMemory != 4<<20 {
		t.Errorf("of a small model, which members copy: %+v", n)
	}
}

// TestWorking checks the memory of a micro batch. Two-byte activations need half the memory. Not all logits of a large
// vocabulary are stored at once. Each group of CPU threads has a micro batch.
func TestWorking(t *testing.T) {
	of := Training{Model: Model{Vocabulary: 256, Activations: 1000, Recomputed: 100}, Batch: Batch{Sequences: 64, Tokens: 256}}
	if got, want := of.Working(), uint64(64*256*4*(1000+256)); got != want {
		t.Errorf("in f32: %d, want %d", got, want)
	}
	changed := of
	if changed.Batch.TwoBytes = true; 2*changed.Working() != of.Working() {
		t.Errorf("in bf16: %d", changed.Working())
	}
	changed = of
	if changed.Batch.Recompute = true; changed.Working() != 64*256*4*(100+256) {
		t.Errorf("recomputed: %d", changed.Working())
	}
	changed = of
	if changed.Batch.Data = 2; changed.Needs().Memory != 2*of.Working() {
		t.Errorf("of two groups: %d", changed.Needs().Memory)
	}
	logits := Training{Model: Model{Vocabulary: 128 << 10}, Batch: Batch{Sequences: 64, Tokens: 256}}
	if got := logits.Working(); got != logitsOnCPU {
		t.Errorf("logits take %d bytes", got)
	}
	if logits.Batch.Devices = 1; logits.Working() != logitsOnDevice {
		t.Errorf("logits on a device take %d bytes", logits.Working())
	}
}

// TestPredictionsAreSums checks for any training that the totals are the sums of the parts, that a larger training
// does not need less, and that no size overflows.
func TestPredictionsAreSums(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.OneOf(rapid.Uint64Range(0, 1<<34), rapid.Uint64())
		of := Training{
			Model: Model{
				Parameters: size.Draw(t, "parameters"), Matrices: size.Draw(t, "matrices"), Vocabulary: size.Draw(t, "vocabulary"),
				Activations: size.Draw(t, "activations"), Recomputed: size.Draw(t, "recomputed"),
			},
			Optimizer: rapid.SampledFrom([]config.Optimizer{
				{}, distro(1, true), distro(2, false), {AdamW: &config.AdamW{}},
				{LocalSteps: &config.LocalSteps{}}, {LocalSteps: &config.LocalSteps{InnerOptimizer: config.Muon, OuterMomentum: 0.5}},
			}).Draw(t, "optimizer"),
			Audited: rapid.Bool().Draw(t, "audited"), Alone: rapid.Bool().Draw(t, "alone"), Keep: rapid.IntRange(-1, 4).Draw(t, "keep"),
			Batch: Batch{
				Sequences: rapid.IntRange(0, 64).Draw(t, "sequences"), Tokens: size.Draw(t, "tokens"), TwoBytes: rapid.Bool().Draw(t, "bf16"),
				Recompute: rapid.Bool().Draw(t, "recompute"), Devices: rapid.IntRange(0, 3).Draw(t, "devices"), Data: rapid.IntRange(0, 3).Draw(t, "data"),
			},
		}
		n := of.Needs()
		var host, device, least uint64
		for _, p := range of.Parts() {
			host, device = plus(host, p.Host), plus(device, p.Device)
			if !p.Later {
				least = plus(least, plus(p.Host, p.Device))
			}
		}
		if n.Memory != host || n.Device != device || plus(n.LeastMemory, n.LeastDevice) != least || n.Memory < n.LeastMemory || n.Device < n.LeastDevice || n.Further > n.Device {
			t.Fatalf("%+v, but the parts are %+v", n, of.Parts())
		}
		larger := of
		larger.Model.Parameters = plus(of.Model.Parameters, size.Draw(t, "more"))
		larger.Batch.Sequences++
		if of.Model.Weights() < math.MaxUint64 && larger.Model.Weights() <= 1<<30 && larger.Needs().Total() < n.Total() {
			t.Fatalf("%+v, and %+v for a larger training", n, larger.Needs())
		}
	})
}
