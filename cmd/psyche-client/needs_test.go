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
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/safetensors"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/required"
)

func quickstartModel(t *testing.T) ([]byte, model.Description) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "configs", "quickstart", "model.json"))
	if err != nil {
		t.Fatal(err)
	}
	of, err := model.Describe(text)
	if err != nil {
		t.Fatal(err)
	}
	return text, of
}

var quickstartDistro = config.Distro{CompressionTopK: 8, CompressionChunk: 64, Quantize1Bit: true}

// TestNeeds checks the memory needs of the quickstart's model with the values of its run. Its
// results have 8,334 bytes.
func TestNeeds(t *testing.T) {
	_, of := quickstartModel(t)
	run := config.Model{MaxSeqLen: 256, Optimizer: config.Optimizer{Distro: &quickstartDistro}}
	two := step{microBatch: 2, size: 4}
	n := needsOf(run, false, of, two, 3)
	// Per token, a layer keeps 256 inputs and 256 values between its halves, 2·256 queries and
	// mixed values, 2·128 keys and values, and 2·688 values of the feed-forward layer. One layer
	// also has the gradients of these values. The head keeps 2·256.
	const layer = 2*256 + 2*256 + 2*128 + 2*688
	const kept = (3+1)*layer + 2*256
	weights, working := 4*uint64(of.NumParameters), uint64(2*256*4*(kept+256))
	if want := (needs{required.Bytes{Model: weights, Memory: 5*weights + working, Disk: 5 * weights, Result: n.Result}, 2*weights + working}); n != want {
		t.Errorf("%+v, want %+v", n, want)
	}
	if n.Result < 8334*8/10 || n.Result > 8334*11/10 {
		t.Errorf("estimated size of a result: %d bytes, want 8334", n.Result)
	}
	lag := quickstartDistro
	lag.ApplyLag = 2
	run.Optimizer.Distro = &lag
	if got := needsOf(run, false, of, two, -1); got.Memory != n.Memory-weights || got.Disk != 0 {
		t.Errorf("without speculation and checkpoints: %+v", got)
	}
	lag.Quantize1Bit = false
	if got := needsOf(run, false, of, two, 0); got.Result < 3*n.Result || got.Disk != 3*weights {
		t.Errorf("with values in place of signs, and all checkpoints kept: %+v", got)
	}
}

// TestWorking checks the memory of a micro batch. With recomputing, a layer keeps only the inputs of
// its halves, and one layer is recomputed at a time. Two-byte activations need half the memory. Device
// memory does not count as main memory. Not all logits of a large vocabulary are stored at once.
func TestWorking(t *testing.T) {
	_, of := quickstartModel(t)
	run := config.Model{MaxSeqLen: 256}
	all := step{microBatch: 64, size: 4}
	if got, want := (step{microBatch: 64, size: 4, recompute: true}).working(of, 256), uint64(64*256*4*(3*2*256+2*(2*256+2*256+2*128+2*688)+2*256+256)); got != want {
		t.Errorf("recomputed: %d, want %d", got, want)
	}
	if got := (step{microBatch: 64, size: 2}).working(of, 256); 2*got != all.working(of, 256) {
		t.Errorf("of two bytes: %d, of four %d", got, all.working(of, 256))
	}
	all.device = true
	if got := needsOf(run, false, of, all, -1); got.Memory != 4*got.Model || got.device != 2*got.Model+all.working(of, 256) {
		t.Errorf("on a device: %+v", got)
	}
	of.Activations, of.VocabSize = 0, 128<<10
	if got := (step{microBatch: 64, size: 4}).working(of, 256); got != logitsOnCPU {
		t.Errorf("logits take %d bytes", got)
	}
}

// TestShortages checks that a shortage is reported with a remedy, and that an unknown amount is not
// a shortage.
func TestShortages(t *testing.T) {
	n := needs{required.Bytes{Model: 4 << 30, Memory: 16 << 30, Disk: 20 << 30, Result: 5000}, 8 << 30}
	if got := n.shortages(machine{}, ""); len(got) != 0 {
		t.Errorf("unknown machine: %q", got)
	}
	if got := n.shortages(machine{memory: 16 << 30, device: 8 << 30, disk: diskspace.Bytes(20 << 30)}, ""); len(got) != 0 {
		t.Errorf("machine with just enough: %q", got)
	}
	var log bytes.Buffer
	has, logger := machine{memory: 1 << 30, device: 4 << 30, disk: diskspace.Bytes(3 << 30)}, slog.New(slog.NewTextHandler(&log, nil))
	n.tell(has, logger)
	n.warn(has, "--recompute, ", logger)
	for _, want := range []string{"model=\"4.0 GiB\"", "memory_available=\"1.0 GiB\"", "4.9 KiB", "16.0 GiB", "--recompute", "--device", "--checkpoint-dir"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &log)
		}
	}
	if got := strings.Count(log.String(), "level=WARN"); got != 3 {
		t.Errorf("%d warnings:\n%s", got, &log)
	}
}

// TestWeigh checks that the needs of a model in a folder are logged. For a model that only members
// have, the log has the reason why the needs are unknown.
func TestWeigh(t *testing.T) {
	text, _ := quickstartModel(t)
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	training := &trainers{command: &trainCommand{}, logger: slog.New(slog.NewTextHandler(&log, nil))}
	training.command.MicroBatchSize, training.command.KeepSteps, training.command.CheckpointDir = 1, 3, dir
	run := config.Model{MaxSeqLen: 256, Optimizer: config.Optimizer{Distro: &quickstartDistro}}
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

// TestRefusal checks that only runs that certainly do not fit are refused. With weights of 4 GiB a
// member needs 12 GiB of memory, or 8 GiB of a device, and 4 GiB of disk.
func TestRefusal(t *testing.T) {
	n := needs{required.Bytes{Model: 4 << 30, Memory: 20 << 30, Disk: 20 << 30}, 9 << 30}
	for _, has := range []machine{{}, {memory: 12 << 30}, {device: 8 << 30, memory: 1 << 30}, {memory: 12 << 30, disk: diskspace.Bytes(4 << 30)}} {
		if err := n.refusal(has, "dir"); err != nil {
			t.Errorf("%+v: %v", has, err)
		}
	}
	for _, has := range []machine{{memory: 12<<30 - 1}, {device: 8<<30 - 1}, {disk: diskspace.Bytes(4<<30 - 1)}, {disk: diskspace.Bytes(0)}} {
		if err := n.refusal(has, "dir"); !errors.Is(err, errTooLarge) && !errors.Is(err, diskspace.ErrTooLittle) {
			t.Errorf("%+v: %v", has, err)
		}
	}
	if n.Disk = 0; n.refusal(machine{disk: diskspace.Bytes(0)}, "") != nil {
		t.Error("refused because of the disk, although nothing is saved")
	}
}

// TestRemedy checks that exactly the possible ways to need less memory are listed.
func TestRemedy(t *testing.T) {
	_, of := quickstartModel(t)
	if got := (step{microBatch: 8, size: 4}).remedy(of, 256); !strings.Contains(got, "--micro-batch-size 1 (") || !strings.Contains(got, "--recompute (") || !strings.Contains(got, "bf16") {
		t.Errorf("of a large micro batch: %q", got)
	}
	if got := (step{microBatch: 1, size: 2, recompute: true}).remedy(of, 256); got != "" {
		t.Errorf("of the smallest: %q", got)
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
	if availableMemory() == 0 {
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
	golden.Message(t, "5 GiB in 4 GiB", fits("the weights", 5<<30, 4<<30))
	if err := errors.Join(fits("the weights", 4<<30, 4<<30), fits("the weights", 5<<30, 0), (&soloCommand{}).fits(1<<20, 8<<20)); err != nil {
		t.Error(err)
	}
	adamw := &soloCommand{soloOptimizer: soloOptimizer{Optimizer: "adamw"}}
	golden.Message(t, "AdamW of 2³⁰ parameters in 8 GiB", adamw.fits(1<<30, 8<<30))
	for parameters, want := range map[int64]uint64{3: 12, 1 << 62: math.MaxUint64, -1: math.MaxUint64} {
		if got := weightBytes(parameters); got != want {
			t.Errorf("%d parameters have %d bytes, want %d", parameters, got, want)
		}
	}
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
	if err := errors.Join(distro.fitsDisk(1<<20, space(8<<20)), adamw.fitsDisk(1<<20, space(12<<20)), (&soloCommand{}).fitsDisk(1<<20, space(0))); err != nil {
		t.Error(err)
	}
	for c, free := range map[*soloCommand]uint64{distro: 8<<20 - 1, adamw: 12<<20 - 1} {
		if err := c.fitsDisk(1<<20, space(free)); !errors.Is(err, diskspace.ErrTooLittle) {
			t.Error(err)
		}
	}
	if err := adamw.fitsDisk(math.MaxInt64, space(math.MaxInt64)); !errors.Is(err, diskspace.ErrTooLittle) {
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
