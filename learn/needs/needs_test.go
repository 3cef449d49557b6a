package needs

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/learn/model"
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
	two := Step{MicroBatch: 2, Size: 4}
	n := Of(run, false, of, two, 3)
	// Per token, a layer keeps 256 inputs and 256 values between its halves, 2·256 queries and
	// mixed values, 2·128 keys and values, and 2·688 values of the feed-forward layer. One layer
	// also has the gradients of these values. The head keeps 2·256.
	const layer = 2*256 + 2*256 + 2*128 + 2*688
	const kept = (3+1)*layer + 2*256
	weights, working := 4*uint64(of.NumParameters), uint64(2*256*4*(kept+256))
	if want := (Needs{required.Bytes{Model: weights, Memory: 5*weights + working, Disk: 5 * weights, Result: n.Result}, 2*weights + working}); n != want {
		t.Errorf("%+v, want %+v", n, want)
	}
	if n.Result < 8334*8/10 || n.Result > 8334*11/10 {
		t.Errorf("estimated size of a result: %d bytes, want 8334", n.Result)
	}
	lag := quickstartDistro
	lag.ApplyLag = 2
	run.Optimizer.Distro = &lag
	if got := Of(run, false, of, two, -1); got.Memory != n.Memory-weights || got.Disk != 0 {
		t.Errorf("without speculation and checkpoints: %+v", got)
	}
	lag.Quantize1Bit = false
	if got := Of(run, false, of, two, 0); got.Result < 3*n.Result || got.Disk != 3*weights {
		t.Errorf("with values in place of signs, and all checkpoints kept: %+v", got)
	}
}

// TestWorking checks the memory of a micro batch. With recomputing, a layer keeps only the inputs of
// its halves, and one layer is recomputed at a time. Two-byte activations need half the memory. Device
// memory does not count as main memory. Not all logits of a large vocabulary are stored at once.
func TestWorking(t *testing.T) {
	_, of := quickstartModel(t)
	run := config.Model{MaxSeqLen: 256}
	all := Step{MicroBatch: 64, Size: 4}
	if got, want := (Step{MicroBatch: 64, Size: 4, Recompute: true}).Working(of, 256), uint64(64*256*4*(3*2*256+2*(2*256+2*256+2*128+2*688)+2*256+256)); got != want {
		t.Errorf("recomputed: %d, want %d", got, want)
	}
	if got := (Step{MicroBatch: 64, Size: 2}).Working(of, 256); 2*got != all.Working(of, 256) {
		t.Errorf("of two bytes: %d, of four %d", got, all.Working(of, 256))
	}
	all.Device = true
	if got := Of(run, false, of, all, -1); got.Memory != 4*got.Model || got.Device != 2*got.Model+all.Working(of, 256) {
		t.Errorf("on a Device: %+v", got)
	}
	of.Activations, of.VocabSize = 0, 128<<10
	if got := (Step{MicroBatch: 64, Size: 4}).Working(of, 256); got != logitsOnCPU {
		t.Errorf("logits take %d bytes", got)
	}
}

// TestShortages checks that a shortage is reported with a remedy, and that an unknown amount is not
// a shortage.
func TestShortages(t *testing.T) {
	n := Needs{required.Bytes{Model: 4 << 30, Memory: 16 << 30, Disk: 20 << 30, Result: 5000}, 8 << 30}
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
	for _, want := range []string{"model=\"4.0 GiB\"", "memory_available=\"1.0 GiB\"", "4.9 KiB", "16.0 GiB", "--recompute", "--device", "--checkpoint-dir"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, &log)
		}
	}
	if got := strings.Count(log.String(), "level=WARN"); got != 3 {
		t.Errorf("%d warnings:\n%s", got, &log)
	}
}

// TestRefusal checks that only runs that certainly do not fit are refused. With weights of 4 GiB a
// member needs 12 GiB of memory, or 8 GiB of a device, and 4 GiB of disk.
func TestRefusal(t *testing.T) {
	n := Needs{required.Bytes{Model: 4 << 30, Memory: 20 << 30, Disk: 20 << 30}, 9 << 30}
	for _, has := range []Machine{{}, {Memory: 12 << 30}, {Device: 8 << 30, Memory: 1 << 30}, {Memory: 12 << 30, Disk: diskspace.Bytes(4 << 30)}} {
		if err := n.Refusal(has, "dir"); err != nil {
			t.Errorf("%+v: %v", has, err)
		}
	}
	for _, has := range []Machine{{Memory: 12<<30 - 1}, {Device: 8<<30 - 1}, {Disk: diskspace.Bytes(4<<30 - 1)}, {Disk: diskspace.Bytes(0)}} {
		if err := n.Refusal(has, "dir"); !errors.Is(err, ErrTooLarge) && !errors.Is(err, diskspace.ErrTooLittle) {
			t.Errorf("%+v: %v", has, err)
		}
	}
	if n.Disk = 0; n.Refusal(Machine{Disk: diskspace.Bytes(0)}, "") != nil {
		t.Error("refused because of the disk, although nothing is saved")
	}
}

// TestRemedy checks that exactly the possible ways to need less memory are listed.
func TestRemedy(t *testing.T) {
	_, of := quickstartModel(t)
	if got := (Step{MicroBatch: 8, Size: 4}).Remedy(of, 256); !strings.Contains(got, "--micro-batch-size 1 (") || !strings.Contains(got, "--recompute (") || !strings.Contains(got, "bf16") {
		t.Errorf("of a large micro batch: %q", got)
	}
	if got := (Step{MicroBatch: 1, Size: 2, Recompute: true}).Remedy(of, 256); got != "" {
		t.Errorf("of the smallest: %q", got)
	}
}
