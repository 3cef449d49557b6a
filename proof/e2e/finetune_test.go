package e2e

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/record/event"
)

// finetuning is the run of scripts/reference/finetune_vectors.py: packed samples of questions and
// answers.
const finetuning = "testdata/finetune"

// TestFineTuning fine-tunes a small Qwen 3 in a run of three members, on packed samples in which
// only the answers are learned. The loss of each batch must equal the loss of the model in
// transformers, trained by a DisTrO in PyTorch, as long as no batch of the run is lost.
func TestFineTuning(t *testing.T) {
	t.Parallel()
	needClient(t)
	var want struct{ Batches, AdamW []float64 }
	content, err := os.ReadFile(filepath.Join(finetuning, "losses.json"))
	if err == nil {
		err = json.Unmarshal(content, &want)
	}
	if err != nil {
		t.Fatal(err)
	}
	steps := len(want.AdamW)
	n := newNetwork(t, rules{clients: 3, minClients: 3, roundsPerEpoch: steps, steps: steps})
	config, err := os.ReadFile(filepath.Join(finetuning, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	n.trains(string(config))
	n.finetunes(t)
	n.startServer()
	clients := n.startClients(3)
	digest := finish(t, clients...)
	checkRun(t, n, clients...)

	losses, lost := batchLosses(clients)
	compared, worst := 0, 0.0
	for i, reference := range want.Batches {
		loss, trained := losses[uint64(2*i)]
		if step := uint32(i/3 + 1); trained && step <= lost {
			compared++
			worst = max(worst, math.Abs(loss-reference))
		}
	}
	mean := func(step int) float64 {
		return (losses[uint64(6*step)] + losses[uint64(6*step+2)] + losses[uint64(6*step+4)]) / 3
	}
	t.Logf("%d batches compared, largest difference %.1e; loss %.3f → %.3f, of AdamW %.3f → %.3f; digest %s",
		compared, worst, mean(0), mean(steps-1), want.AdamW[0], want.AdamW[steps-1], digest)
	if compared < 3 || worst > 5e-3 {
		t.Errorf("%d batches compared, the largest difference is %v", compared, worst)
	}
}

// finetunes configures the run to train on packed samples, with the settings of the reference.
func (n *network) finetunes(t *testing.T) {
	t.Helper()
	folder, err := filepath.Abs(finetuning)
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(n.state)
	if err != nil {
		t.Fatal(err)
	}
	before, after, found := strings.Cut(string(content), "[model.LLM.data_location.Local]")
	_, after, more := strings.Cut(after, "[model.LLM.checkpoint")
	if !found || !more {
		t.Fatalf("state.toml has no local data:\n%s", content)
	}
	before = strings.Replace(before, "max_seq_len = 32", "max_seq_len = 64", 1) +
		"[model.LLM.data_location]\nPreprocessed = \"" + folder + "\"\n[model.LLM.checkpoint"
	writeFile(t, n.state, []byte(before+after))
	n.change(`data_type = "Pretraining"`, `data_type = "Finetuning"`)
	n.change("compression_decay = 0.9", "compression_decay = 0.0")
	n.change("base_lr = 1.0e-3", "base_lr = 2.0e-3")
}

// batchLosses returns the loss of each batch by its first sample, and the first step with a lost
// result. If no result is lost, this step is beyond the end of any run.
func batchLosses(clients []*client) (losses map[uint64]float64, lost uint32) {
	losses, lost = map[uint64]float64{}, math.MaxUint32
	for _, c := range clients {
		for _, e := range c.events() {
			switch body := e.Body.(type) {
			case event.Trained:
				losses[body.Batch[0]] = float64(body.Loss)
			case event.Applied:
				if len(body.Lost) > 0 {
					lost = min(lost, body.Step)
				}
			}
		}
	}
	return losses, lost
}
