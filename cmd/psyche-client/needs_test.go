package main

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/base/diskspace/diskspacetest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/sysmemory"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/memory"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/record/config"
)

// TestWeigh checks that the needs of a model in a folder are logged. For a model that only members
// have, the log has the reason why the needs are unknown.
func TestWeigh(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "configs", "quickstart", "model.json"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	training := &trainers{command: &trainCommand{}, logger: slog.New(slog.NewTextHandler(&log, nil))}
	training.command.MicroBatchSize, training.command.KeepSteps, training.command.CheckpointDir = 1, 3, dir
	run := config.Model{MaxSeqLen: 256, Optimizer: config.Optimizer{Distro: &config.Distro{CompressionTopK: 8, CompressionChunk: 64, Quantize1Bit: true}}}
	if err := training.weigh(t.Context(), run, false, coordinator.Checkpoint{Kind: coordinator.CheckpointLocal}, dir); err != nil {
		t.Error(err)
	}
	for _, want := range []string{"memory_at_least=", "memory_available=", "disk_free="} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("it does not say %q: %s", want, &log)
		}
	}
	log.Reset()
	if err := training.weigh(t.Context(), run, false, coordinator.Checkpoint{Kind: coordinator.CheckpointP2P, Origin: coordinator.CheckpointLocal, Repo: dir}, ""); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), "reason=") {
		t.Errorf("of a model that members have: %s", &log)
	}
}

// TestExplainMemory checks that errors of failed allocations get the size and a remedy, and that
// other errors stay unchanged.
func TestExplainMemory(t *testing.T) {
	failed := fmt.Errorf("step 3: %w", &torch.Error{Op: "linear", Message: "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes."})
	if err := explainMemory(failed); !errors.Is(err, torch.ErrMemory) || exitCode(err) != exitFailure {
		t.Error(err)
	} else {
		golden.Message(t, "4096 bytes", err)
	}
	if err := errors.New("another"); explainMemory(err) != err { //nolint:errorlint // the same error
		t.Error(explainMemory(err))
	}
}

// TestModelLargerThanMemoryIsRefused checks that commands refuse a model that is larger than the memory before they allocate
// or read it.
func TestModelLargerThanMemoryIsRefused(t *testing.T) {
	if sysmemory.Available() == 0 {
		t.Skip("the available memory is not known here")
	}
	dir := t.TempDir()
	for name, sizes := range map[string]string{
		"wide":   `"hidden_size": 16384, "intermediate_size": 65536, "num_hidden_layers": 400`,
		"deep":   `"hidden_size": 8192, "intermediate_size": 65536, "num_hidden_layers": 4096`,
		"square": `"hidden_size": 65536, "intermediate_size": 65536, "num_hidden_layers": 40`,
	} {
		config := write(t, filepath.Join(dir, name+".json"), []byte(`{"architectures":["LlamaForCausalLM"],"vocab_size":256,"num_attention_heads":8,"max_position_embeddings":32,`+sizes+`}`))
		out := filepath.Join(dir, name)
		fail(t, exitFailure, name, "init-model", "--config", config, "--output", out)
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%s: the folder was made", name)
		}
	}
	golden.Message(t, "5 GiB in 4 GiB", memory.Fits("the weights", 5<<30, 4<<30))
	if err := errors.Join(memory.Fits("the weights", 4<<30, 4<<30), memory.Fits("the weights", 5<<30, 0), (&soloCommand{}).fits((&soloCommand{}).training(memory.Model{Parameters: 1 << 20}, 0), 8<<20)); err != nil {
		t.Error(err)
	}
	adamw := &soloCommand{soloOptimizer: soloOptimizer{Optimizer: "adamw"}}
	golden.Message(t, "AdamW of 2³⁰ parameters in 8 GiB", adamw.fits(adamw.training(memory.Model{Parameters: 1 << 30}, 0), 8<<30))
	golden.Message(t, "AdamW of 2³⁰ parameters on a device of 8 GiB", adamw.fits(adamw.training(memory.Model{Parameters: 1 << 30}, 1), 8<<30))
	model, _ := toy(t)
	if err := os.Truncate(filepath.Join(model, "model.safetensors"), 8<<40); err != nil {
		t.Skipf("needs a file system with files of 8 TiB: %v", err)
	}
	fail(t, exitFailure, "generate", "generate", "--model", model, "--prompt", "a")
}

// TestFitsDisk checks that commands refuse a folder with too little space before they compute.
func TestFitsDisk(t *testing.T) {
	space := func(bytes uint64) diskspace.Probe {
		return func(string) diskspace.Space { return diskspace.Bytes(bytes) }
	}
	distro := &soloCommand{Save: "out"}
	adamw := &soloCommand{Save: "out", soloOptimizer: soloOptimizer{Optimizer: "adamw"}}
	if err := errors.Join(distro.fitsDisk(memory.Model{Parameters: 1 << 20}, space(8<<20)), adamw.fitsDisk(memory.Model{Parameters: 1 << 20}, space(12<<20)), (&soloCommand{}).fitsDisk(memory.Model{Parameters: 1 << 20}, space(0))); err != nil {
		t.Error(err)
	}
	for c, free := range map[*soloCommand]uint64{distro: 8<<20 - 1, adamw: 12<<20 - 1} {
		if err := c.fitsDisk(memory.Model{Parameters: 1 << 20}, space(free)); !errors.Is(err, diskspace.ErrTooLittle) {
			t.Error(err)
		}
	}
	if err := adamw.fitsDisk(memory.Model{Parameters: math.MaxInt64}, space(math.MaxInt64)); !errors.Is(err, diskspace.ErrTooLittle) {
		t.Error(err)
	}

	dir, model, data := diskspacetest.Mount(t, 16<<10), "", ""
	model, data = toy(t)
	config := write(t, filepath.Join(t.TempDir(), "config.json"), []byte(toyConfig))
	for _, fill := range []int{0, 16 << 10} {
		if err := os.WriteFile(filepath.Join(dir, "ballast"), make([]byte, fill), 0o600); err != nil {
			t.Fatal(err)
		}
		free := diskspace.Format(uint64(16<<10 - fill))
		failNaming(t, exitFailure, free, "init-model", "--config", config, "--output", filepath.Join(dir, "model"))
		failNaming(t, exitFailure, free, "solo", "--model", model, "--data-path", data, "--seq-len", "16", "--save", filepath.Join(dir, "save"))
		if _, err := os.Stat(filepath.Join(dir, "model")); err == nil {
			t.Error("the folder was made")
		}
	}
	// The remains of killed processes do not count: the commands remove them first.
	if err := os.Remove(filepath.Join(dir, "ballast")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"model", "save"} {
		remains := filepath.Join(dir, safetensors.UnfinishedName(name))
		if err := os.Mkdir(remains, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(remains, "model.safetensors"), make([]byte, 8<<10), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	free := diskspace.Format(8 << 10)
	failNaming(t, exitFailure, free, "init-model", "--config", config, "--output", filepath.Join(dir, "model"))
	free = diskspace.Format(16 << 10)
	failNaming(t, exitFailure, free, "solo", "--model", model, "--data-path", data, "--seq-len", "16", "--save", filepath.Join(dir, "save"))
}
