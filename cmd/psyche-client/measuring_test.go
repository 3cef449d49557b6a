package main

import (
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/face/metrics"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/learn/train"
	"github.com/psyche-go/psyche/node/member"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/event"
)

// trainMeasured trains steps of the model in testdata, as a client does, and returns the digest.
func trainMeasured(t *testing.T, m *measuring, steps uint32, between func(step uint32)) [32]byte {
	t.Helper()
	s, err := checkpoint.ReadDir(evalModel)
	if err != nil {
		t.Fatal(err)
	}
	trainer, err := train.New(t.Context(), train.Options{
		Model: s, MicroBatch: 2, Threads: 1, RunID: "r", TrainerID: [32]byte{1},
		Optimizer:  config.Optimizer{Distro: &config.Distro{CompressionDecay: 0.9, CompressionTopK: 8, CompressionChunk: 16, Quantize1Bit: true, ClipGradNorm: 1}},
		LRSchedule: config.LRSchedule{Constant: &config.ConstantLR{BaseLR: 1e-3}},
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Use(trainer, s)
	kept := member.New(trainer, m, nil)
	for step := uint32(1); step <= steps; step++ {
		sequence := make([]int32, 33)
		for i := range sequence {
			sequence[i] = int32(i*7+int(step)) % 400
		}
		payload, _, err := kept.Train(t.Context(), step, data.Batch{ID: assign.BatchID{Start: 0, End: 1}, Sequences: [][]int32{sequence}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		between(step)
		if err := kept.Apply(t.Context(), step, [][]byte{payload}, nil, true); err != nil {
			t.Fatal(err)
		}
	}
	m.complete(t.Context(), time.Minute)
	trained, err := kept.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	m.Forget()
	if err := trainer.Close(); err != nil {
		t.Fatal(err)
	}
	return trained.Manifest().Digest()
}

// TestMeasuredWhileTrained checks that tasks are measured between the parts of steps and do not
// change the training, and that the final model has its own scores.
func TestMeasuredWhileTrained(t *testing.T) {
	requireTorch(t)
	all, err := parsed(t, "psyche-client", "train", "--run-id", "r", "--server-addr", "h:1", "--eval-tasks", "piqa,arc_easy",
		"--eval-fewshot", "1", "--eval-seed", "42", "--eval-task-max-docs", "3", "--eval-data", evalData, "--prompt-task")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var reports []event.Evaluated
	events, board := event.Unwritten(), metrics.New()
	events.Watch(board.See)
	events.Watch(func(e event.Event) {
		mu.Lock()
		defer mu.Unlock()
		reports = append(reports, e.Body.(event.Evaluated))
	})
	m, err := all.Train.measure(t.Context(), all.Train.hubFlags, events, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	const steps = 6
	measures := func(step uint32) { // tasks are measured before the last step, however busy the machine is
		for deadline := time.Now().Add(time.Minute); step == steps-1 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			mu.Lock()
			reported := len(reports) > 0
			mu.Unlock()
			if reported {
				return
			}
		}
	}
	if with, without := trainMeasured(t, m, steps, measures), trainMeasured(t, nil, steps, func(uint32) {}); with != without {
		t.Errorf("the model is %x, without measuring %x", with, without)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, task := range []string{"piqa", "arc_easy", "prompt"} {
		if !slices.ContainsFunc(reports, func(e event.Evaluated) bool {
			return e.Task == task && e.Step == steps && (e.Samples == 3) == (task != "prompt") && (e.Text != "") == (task == "prompt")
		}) {
			t.Errorf("%s of the final model is missing", task)
		}
	}
	if !slices.ContainsFunc(reports, func(e event.Evaluated) bool { return e.Step < steps }) {
		t.Errorf("nothing was measured while training: %+v", reports)
	}
	if value, found := board.Values()["eval/piqa"]; !found || value != board.Values()["eval/piqa/acc_norm"] {
		t.Errorf("metrics: %v", board.Values())
	}
}
