package fit_test

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/memory"
	"github.com/psyche-go/psyche/learn/memory/fit"
	"github.com/psyche-go/psyche/learn/model"
	"github.com/psyche-go/psyche/learn/torch/torchtest"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/record/config"
)

// measuredEnv makes the test program train one of the measured trainings, print its peak in bytes, and end.
const measuredEnv = "PSYCHE_TEST_PEAK"

// tokens is the length of the sequences.
const tokens = 256

// measured are the trainings whose peaks the test compares with predictions. The first model has mostly embeddings, and
// the second model mostly layers.
var measured = []struct {
	name       string
	config     string
	optimizer  config.Optimizer
	audited    bool
	recompute  bool
	microBatch int
	most       float64 // the peak is at most this number times the prediction
}{
	{name: "embeddings, audited", config: shape(16384, 384, 1), optimizer: distro, audited: true, microBatch: 2, most: 1.5},
	{name: "layers", config: shape(256, 320, 8), optimizer: distro, microBatch: 4, most: 1.5},
	{name: "layers, recomputed", config: shape(256, 320, 8), optimizer: distro, recompute: true, microBatch: 4, most: 2},
	{name: "layers, local steps", config: shape(256, 320, 8), optimizer: config.Optimizer{LocalSteps: &config.LocalSteps{
		InnerSteps: 1, Eps: 1e-8, OuterLR: 1, CompressionTopK: 8, CompressionChunk: 64, ValueBits: 4,
	}}, microBatch: 4, most: 1.5},
}

var distro = config.Optimizer{Distro: &config.Distro{CompressionTopK: 8, CompressionChunk: 64, Quantize1Bit: true, CompressionDecay: 0.9, ClipGradNorm: 1}}

func shape(vocabulary, hidden, layers int) string {
	return fmt.Sprintf(`{"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":%d,"hidden_size":%d,"intermediate_size":%d,
"num_hidden_layers":%d,"num_attention_heads":8,"num_key_value_heads":8,"max_position_embeddings":%d,"tie_word_embeddings":true}`,
		vocabulary, hidden, 3*hidden, layers, tokens)
}

// TestPeak compares the prediction for a trainer on the CPU with the peak of the resident memory in a new process.
// The peak contains garbage, results, and scratch memory of libtorch, so it may exceed the prediction.
func TestPeak(t *testing.T) {
	if number, err := strconv.Atoi(os.Getenv(measuredEnv)); err == nil {
		fmt.Printf("peak %d\n", peak(t, number))
		return
	}
	torchtest.Engine(t)
	for i, m := range measured {
		t.Run(m.name, func(t *testing.T) {
			if _, err := os.Stat("/proc/self/clear_refs"); err != nil {
				t.Skip("needs Linux, which resets the peak of the resident memory")
			}
			program := exec.Command(os.Args[0], "-test.run=^TestPeak$")
			program.Env = append(os.Environ(), measuredEnv+"="+strconv.Itoa(i))
			out, err := program.CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			var got float64
			if _, after, found := strings.Cut(string(out), "peak "); found {
				if _, err := fmt.Sscan(after, &got); err != nil {
					t.Fatal(err)
				}
			}
			want := float64(predicted(t, i).Needs().Memory)
			t.Logf("peak %.1f MB, predicted %.1f MB: %.2f", got/1e6, want/1e6, got/want)
			if got < least*want || got > measured[i].most*want {
				t.Errorf("peak of %.0f bytes, predicted %.0f", got, want)
			}
		})
	}
}

// least is the smallest quotient of a measured peak and its prediction. Predictions are lower bounds; the resident
// memory may be measured too early or too late.
const least = 0.95

func options(t *testing.T, i int) (train.Options, model.Description) {
	m := measured[i]
	of, err := model.Describe([]byte(m.config))
	if err != nil {
		t.Fatal(err)
	}
	return train.Options{
		Optimizer: m.optimizer, LRSchedule: config.LRSchedule{Constant: &config.ConstantLR{BaseLR: 1e-3}}, Compute: model.Options{Recompute: m.recompute},
		MicroBatch: m.microBatch, Threads: 1, Audited: m.audited,
	}, of
}

func predicted(t *testing.T, i int) memory.Training {
	o, of := options(t, i)
	training := fit.Of(o, of, tokens)
	training.Alone = true // a single trainer: no speculation, and no copies for other members
	return training
}

// peak trains two steps, and returns how much memory this took, without the program and libtorch.
func peak(t *testing.T, i int) uint64 {
	torchtest.Engine(t)
	debug.SetGCPercent(5)
	before := resident(t, "VmRSS:")
	o, _ := options(t, i)
	made := trainer(t, o, measured[i].config)
	runtime.GC()
	debug.FreeOSMemory()
	if err := os.WriteFile("/proc/self/clear_refs", []byte("5"), 0); err != nil { // resets VmHWM
		t.Fatal(err)
	}
	for step := range uint32(2) {
		batch := data.Batch{ID: assign.BatchID{Start: 0, End: uint64(o.MicroBatch)}}
		for range o.MicroBatch {
			sequence := make([]int32, tokens+1)
			for j := range sequence {
				sequence[j] = int32(j % 256)
			}
			batch.Sequences = append(batch.Sequences, sequence)
		}
		if _, err := made.Step(t.Context(), step+1, batch); err != nil {
			t.Fatal(err)
		}
	}
	return resident(t, "VmHWM:") - before
}

// trainer makes the trainer of options. Its initial weights are garbage afterwards.
func trainer(t *testing.T, o train.Options, text string) *train.Trainer {
	tensors, err := model.Init([]byte(text), 1)
	if err != nil {
		t.Fatal(err)
	}
	o.Model = checkpoint.Snapshot{Files: []checkpoint.File{{Name: checkpoint.ConfigFile, Data: []byte(text)}}, Tensors: tensors}
	build := train.New
	if o.Optimizer.LocalSteps != nil {
		build = train.NewLocal
	}
	made, err := build(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := made.Close(); err != nil {
			t.Error(err)
		}
	})
	return made
}

// resident returns a size in bytes from the status of the process.
func resident(t *testing.T, name string) uint64 {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == name {
			kib, err := strconv.ParseUint(fields[1], 10, 50)
			if err != nil {
				t.Fatal(err)
			}
			return kib << 10
		}
	}
	t.Fatalf("no %s in %s", name, status)
	return 0
}
