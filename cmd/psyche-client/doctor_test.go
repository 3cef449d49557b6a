package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/learn/memory"
	"github.com/psyche-go/psyche/learn/torch"
)

// TestFixes checks the commands for missing parts.
func TestFixes(t *testing.T) {
	missing, stale := fmt.Errorf("load: %w", torch.ErrNoLibrary), fmt.Errorf("load: %w", torch.ErrStaleLibrary)
	forCPU, forCUDA, one := torch.Info{}, torch.Info{ForCUDA: true}, torch.Info{ForCUDA: true, CUDA: 1}
	for name, test := range map[string]struct {
		parts parts
		want  []string
	}{
		"CPU":                         {parts{torch: forCPU}, nil},
		"GPU":                         {parts{card: true, driver: true, torch: one}, nil},
		"in WSL, without PCI devices": {parts{torch: one}, nil},
		"no libtorch":                 {parts{library: missing}, []string{"make build"}},
		"no libtorch for a GPU":       {parts{card: true, driver: true, library: missing}, []string{"make cuda"}},
		"old shim":                    {parts{card: true, driver: true, library: stale}, []string{"make shim"}},
		"libtorch for CPUs":           {parts{card: true, driver: true, torch: forCPU}, []string{"make cuda"}},
		"no driver, Debian":           {parts{card: true, system: "debian", torch: forCPU}, []string{"sudo apt-get install nvidia-driver"}},
		"no driver, Ubuntu":           {parts{card: true, system: "ubuntu", torch: forCUDA}, []string{"sudo ubuntu-drivers install"}},
		"no driver, no libtorch":      {parts{card: true, system: "arch", library: missing}, []string{"make build", "install the driver"}},
		"no device":                   {parts{card: true, driver: true, torch: forCUDA}, []string{"unset CUDA_VISIBLE_DEVICES"}},
		"no kernels":                  {parts{card: true, driver: true, torch: one, kernels: errors.New("no NVRTC")}, []string{"python3 -m pip install"}},
	} {
		got := test.parts.fixes()
		if len(got) != len(test.want) || slices.ContainsFunc(got, func(f fix) bool { return f.missing == "" }) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
			continue
		}
		for i, want := range test.want {
			if !strings.HasPrefix(got[i].command, want) {
				t.Errorf("%s: %q, want %q", name, got[i].command, want)
			}
		}
	}
}

// TestFindParts checks that the doctor finds a GPU and its driver, and no other PCI device.
func TestFindParts(t *testing.T) {
	root := t.TempDir()
	add := func(name, text string) {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		write(t, path, []byte(text))
	}
	add("etc/os-release", "NAME=x\nID=\"debian\"\n")
	add("sys/bus/pci/devices/0/vendor", "0x10de\n")
	add("sys/bus/pci/devices/0/class", "0x0c0330\n") // the USB controller of a card
	if p := findParts(root, torch.ErrNoLibrary); p.card || p.driver || p.system != "debian" {
		t.Errorf("%+v", p)
	}
	add("sys/bus/pci/devices/1/vendor", "0x10de\n")
	add("sys/bus/pci/devices/1/class", "0x030200\n")
	add("proc/driver/nvidia/version", "NVRM\n")
	if p := findParts(root, torch.ErrNoLibrary); !p.card || !p.driver {
		t.Errorf("%+v", p)
	}
	if p := findParts(t.TempDir(), torch.ErrNoLibrary); p.card || p.driver || p.system != "" {
		t.Errorf("of no files: %+v", p)
	}
}

// TestPredict checks that the doctor prints the memory of a training on the CPU, and of each device.
func TestPredict(t *testing.T) {
	requireTorch(t)
	model := write(t, filepath.Join(t.TempDir(), "config.json"), []byte(toyConfig))
	for _, path := range []string{model, filepath.Dir(model)} {
		out := succeed(t, "doctor", "--device", "cpu", "--model", path, "--optimizer", "local-muon", "--audited")
		for _, want := range []string{"needs at least", "gradient", "running means", "residual before the newest result"} {
			if !strings.Contains(out, want) {
				t.Errorf("no %q in:\n%s", want, out)
			}
		}
	}
	failNaming(t, exitFailure, "absent", "doctor", "--model", "absent")

	var rows []string
	row := func(name, format string, args ...any) { rows = append(rows, name+": "+fmt.Sprintf(format, args...)) }
	of := memory.Training{Model: memory.Model{Parameters: 1 << 30, Activations: 1 << 20, Recomputed: 1}, Batch: memory.Batch{Sequences: 1, Tokens: 2048, Devices: 2}}
	describeMemory(row, of, []torch.Device{0, 1}, memory.Machine{Memory: 64 << 30, Device: 16 << 30})
	for _, want := range []string{
		"  memory: needs at least 4.0 GiB of 64.0 GiB", "  cuda:0: needs at least 20.0 GiB of 16.0 GiB: too little", "  cuda:1: needs at least 16.0 GiB of 16.0 GiB",
		"    weights: 4.0 GiB on the device, 4.0 GiB in memory", "    micro-batch: 8.0 GiB on the device",
	} {
		if !slices.Contains(rows, want) {
			t.Errorf("no %q in %q", want, rows)
		}
	}
	if last := rows[len(rows)-1]; !strings.HasPrefix(last, "  less: --recompute (then at least 12.0 GiB)") {
		t.Errorf("the last row is %q", last)
	}
}
