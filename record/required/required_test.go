package required

import (
	"testing"

	"github.com/psyche-go/psyche/core/codec"
	"github.com/psyche-go/psyche/record/config"
)

// TestOf checks the requirements of models with one value per weight, by optimizer and by number of
// stored checkpoints.
func TestOf(t *testing.T) {
	distro := func(lag uint8, signs bool) config.Optimizer {
		return config.Optimizer{Distro: &config.Distro{CompressionTopK: 8, CompressionChunk: 64, Quantize1Bit: signs, ApplyLag: lag}}
	}
	const weights = 4 << 20
	for name, test := range map[string]struct {
		optimizer  config.Optimizer
		parameters uint64
		keep       int
		want       Bytes
	}{
		"signs":              {distro(1, true), 1 << 20, Kept, Bytes{Model: weights, Memory: 5 * weights, Disk: 5 * weights, Result: (1<<20)/4096*8*13/8 + codec.HeaderSize}},
		"no speculation":     {distro(2, true), 1 << 20, Kept, Bytes{Model: weights, Memory: 4 * weights, Disk: 5 * weights, Result: (1<<20)/4096*8*13/8 + codec.HeaderSize}},
		"no copy that big":   {distro(1, true), 1 << 30, -1, Bytes{Model: 4 << 30, Memory: 16 << 30, Result: (1<<30)/4096*8*13/8 + codec.HeaderSize}},
		"large, on the disk": {distro(1, true), 1 << 30, Kept, Bytes{Model: 4 << 30, Memory: 12 << 30, Disk: 20 << 30, Result: (1<<30)/4096*8*13/8 + codec.HeaderSize}},
		"values":             {distro(1, false), 1 << 20, 0, Bytes{Model: weights, Memory: 5 * weights, Disk: 3 * weights, Result: (1<<20)/4096*8*44/8 + codec.HeaderSize}},
		"local steps":        {config.Optimizer{LocalSteps: &config.LocalSteps{}}, 1 << 20, 1, Bytes{Model: weights, Memory: 7 * weights, Disk: 3 * weights}},
		"outer momentum":     {config.Optimizer{LocalSteps: &config.LocalSteps{OuterMomentum: 0.9}}, 1 << 20, 1, Bytes{Model: weights, Memory: 8 * weights, Disk: 3 * weights}},
		"another optimizer":  {config.Optimizer{}, 1 << 20, 1, Bytes{Model: weights, Memory: 4 * weights, Disk: 3 * weights}},
	} {
		if got := Of(config.Model{Optimizer: test.optimizer}, false, test.parameters, test.keep); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
		test.want.Memory += test.want.Model
		if got := Of(config.Model{Optimizer: test.optimizer}, true, test.parameters, test.keep); got != test.want {
			t.Errorf("%s, with audits: %+v, want %+v", name, got, test.want)
		}
	}
}
