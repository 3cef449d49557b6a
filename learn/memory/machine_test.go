package memory

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/diskspace"
)

// TestShortages checks that a shortage is reported with a remedy, and that an unknown amount is not a shortage.
func TestShortages(t *testing.T) {
	n := Needs{Bytes: Bytes{Model: 4 << 30, Memory: 16 << 30, Disk: 20 << 30, Result: 5000}, Device: 8 << 30}
	if got := n.shortages(Machine{}, ""); len(got) != 0 {
		t.Errorf("unknown machine: %q", got)
	}
	if got := n.shortages(Machine{Memory: 16 << 30, Device: 8 << 30, Disk: diskspace.Bytes(20 << 30)}, ""); len(got) != 0 {
		t.Errorf("machine with just enough: %q", got)
	}
	var log bytes.Buffer
	has, logger := Machine{Memory: 1 << 30, Device: 4 << 30, Disk: diskspace.Bytes(3 << 30)}, slog.New(slog.NewTextHandler(&log, nil))
	n.Log(has, logger)
	n.Warn(has, "--recompute, ", logger)
	for _, want := range []string{
		"model=\"4.0 GiB\"", "memory_available=\"1.0 GiB\"", "device_memory_at_least=\"8.0 GiB\"", "4.9 KiB", "16.0 GiB", "--recompute, choose another --device", "--checkpoint-dir",
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &log)
		}
	}
	if got := strings.Count(log.String(), "level=WARN"); got != 3 {
		t.Errorf("%d warnings:\n%s", got, &log)
	}
	if n.Device = 0; !strings.HasPrefix(n.shortages(has, "--recompute, ")[0], "memory: ") || !strings.Contains(n.shortages(has, "--recompute, ")[0], "--recompute") {
		t.Errorf("the CPU computes, and memory is short: %q", n.shortages(has, "--recompute, "))
	}
}

// TestRefusal checks that only runs that certainly do not fit are refused.
func TestRefusal(t *testing.T) {
	onCPU := Needs{Bytes: Bytes{Model: 4 << 30, Memory: 20 << 30, Disk: 20 << 30}, LeastMemory: 12 << 30}
	onDevice := Needs{Bytes: Bytes{Model: 4 << 30, Memory: 8 << 30, Disk: 20 << 30}, Device: 20 << 30, LeastMemory: 4 << 30, LeastDevice: 12 << 30}
	for name, test := range map[string]struct {
		needs   Needs
		has     Machine
		refused bool
	}{
		"unknown":                   {onCPU, Machine{}, false},
		"enough memory":             {onCPU, Machine{Memory: 12 << 30}, false},
		"too little memory":         {onCPU, Machine{Memory: 12<<30 - 1}, true},
		"enough on a device":        {onDevice, Machine{Device: 12 << 30, Memory: 4 << 30}, false},
		"too little on a device":    {onDevice, Machine{Device: 12<<30 - 1}, true},
		"too little next to device": {onDevice, Machine{Device: 12 << 30, Memory: 4<<30 - 1}, true},
		"enough disk":               {onCPU, Machine{Disk: diskspace.Bytes(4 << 30)}, false},
		"too little disk":           {onCPU, Machine{Disk: diskspace.Bytes(4<<30 - 1)}, true},
		"no disk":                   {onCPU, Machine{Disk: diskspace.Bytes(0)}, true},
	} {
		err := test.needs.Refusal(test.has, "dir")
		if known := errors.Is(err, ErrTooLarge) || errors.Is(err, diskspace.ErrTooLittle); known != test.refused || (err != nil) != test.refused {
			t.Errorf("%s: %v", name, err)
		}
	}
	if onCPU.Disk = 0; onCPU.Refusal(Machine{Disk: diskspace.Bytes(0)}, "") != nil {
		t.Error("refused because of the disk, although nothing is saved")
	}
}

// training has flags that reduce its memory. Its micro batch of eight sequences takes 32,000 bytes.
var training = Training{
	Model: Model{Parameters: 10, Activations: 100, Recomputed: 10}, Optimizer: distro(1, true), Keep: -1, Batch: Batch{Sequences: 8, Tokens: 10},
}

// TestRemedy checks that exactly the flags that need less memory are listed.
func TestRemedy(t *testing.T) {
	if got, want := training.Remedy(""), "--micro-batch-size 1 (then at least 4.1 KiB), --recompute (then at least 3.3 KiB), --compute-dtype bf16 (then at least 15.8 KiB), "+
		"--micro-batch-size 1 --recompute --compute-dtype bf16 (then at least 400 B), "; got != want {
		t.Errorf("of a large micro batch: %q, want %q", got, want)
	}
	single := training
	if single.Batch.Sequences = 1; strings.Contains(single.Remedy(""), "--micro-batch-size") || strings.Count(single.Remedy(""), "--recompute") != 2 {
		t.Errorf("of one sequence: %q", single.Remedy(""))
	}
	least := training
	if least.Batch = (Batch{Sequences: 1, Tokens: 10, TwoBytes: true, Recompute: true}); least.Remedy("--micro-batch") != "" {
		t.Errorf("of the smallest: %q", least.Remedy("--micro-batch"))
	}
	// On a device, bf16 costs a copy of the weights.
	onDevice := Training{Model: Model{Parameters: 10, Activations: 1, Recomputed: 1}, Batch: Batch{Sequences: 1, Tokens: 1, Devices: 1}}
	if got := onDevice.Remedy(""); got != "" {
		t.Errorf("on a device: %q", got)
	}
}

// TestAdvice checks that the advice after a failed allocation lists only flags with which the training fits.
func TestAdvice(t *testing.T) {
	onDevice := training
	onDevice.Batch.Devices = 1
	for has, want := range map[uint64][]string{
		0:       {"--micro-batch 1 (", "--recompute (", "bf16 ("},
		4200:    {"--micro-batch 1 (", "--recompute (", "--micro-batch 1 --recompute --compute-dtype bf16 ("},
		10000:   {"--micro-batch 2 (", "--recompute (", "--micro-batch 1 --recompute --compute-dtype bf16 ("},
		1 << 20: {"--micro-batch 4 (", "--recompute (", "--compute-dtype bf16 ("},
		1000:    {"; use less: --micro-batch 1 --recompute --compute-dtype bf16 ("},
		100:     {"no flag"},
	} {
		got := onDevice.Advice("--micro-batch", has)
		for _, part := range append(want, "device memory") {
			if !strings.Contains(got, part) {
				t.Errorf("with %d bytes: %q, want %q", has, got, part)
			}
		}
		if has == 1000 && strings.Contains(got, " or ") {
			t.Errorf("with %d bytes: %q", has, got)
		}
	}
}
