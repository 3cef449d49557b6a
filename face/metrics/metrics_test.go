package metrics_test

import (
	"encoding/json"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/face/metrics"
	"github.com/psyche-go/psyche/record/event"
)

// train shows three rounds of 2 s to a board, with 1.5 s of training each.
func train(b *metrics.Board) (rows []metrics.Row) {
	b.SetVocabulary(256)
	b.Listen(func(r metrics.Row) { rows = append(rows, r) })
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for step := uint32(1); step <= 3; step++ {
		for _, body := range []event.Body{
			event.State{RunState: "RoundTrain", Epoch: 2, Step: step, Members: []string{"a", "b"}, BatchSize: 8, DataIndex: uint64(8 * (step - 1))},
			event.State{RunState: "RoundTrain", Epoch: 2, Step: step, Members: []string{"a", "b"}, Witnesses: 1, BatchSize: 8, DataIndex: uint64(8 * (step - 1))},
			event.Gradient{Step: step, LR: 0.5, Norm: 3},
			event.OptimizerStats{Step: step, Tensors: []event.TensorStats{{Name: "w", GradientEnergy: float64(step), DeltaEnergy: 7}}},
			event.Trained{Step: step, Batch: event.Batch{0, 4}, Loss: event.Loss(math.Log(16)), Tokens: 400, Seconds: 1.5},
		} {
			b.See(event.Event{Time: at, Body: body})
		}
		at = at.Add(2 * time.Second)
	}
	b.See(event.Event{Time: at, Body: event.Evaluated{Step: 3, Task: "arc_easy", Scores: map[string]float64{"acc": 0.25, "acc_norm": 0.5}}})
	return rows
}

func TestRows(t *testing.T) {
	rows := train(metrics.New())
	if len(rows) != 4 || rows[2].Step != 3 {
		t.Fatalf("rows %v", rows)
	}
	for name, want := range map[string]float64{
		"train/loss": math.Log(16), "train/perplexity": 16, "train/confidence": 0.5, "train/lr": 0.5, "train/grad_norm": 3,
		"train/total_tokens": 2400, "train/tokens_per_sec": 400, "train/global_token_batch_size": 800, "train/" + "effic" + "ency": 0.75,
		"coordinator/num_clients": 2, "coordinator/epoch": 2, "coordinator/round": 3,
		"optim/w.grad_energy": 3, "optim/w.delta_energy": 7,
	} {
		if got, found := rows[2].Values[name]; !found || math.Abs(got-want) > 1e-9 {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if got := rows[3].Values; got["eval/arc_easy"] != 0.5 || got["eval/arc_easy/acc"] != 0.25 || len(got) != 3 {
		t.Errorf("the task's row is %v", got)
	}
}

// TestClaims checks that each round with claims has a row with their values, and that other rows
// have none.
func TestClaims(t *testing.T) {
	b := metrics.New()
	var rows []metrics.Row
	b.Listen(func(r metrics.Row) { rows = append(rows, r) })
	for step := uint32(1); step <= 3; step++ {
		s := event.State{RunState: "RoundTrain", Step: step, BatchSize: 8}
		if step > 1 {
			s.Claimed = &event.Claimed{Step: step - 1, Witnesses: 4, Loss: event.Claims{Count: 3, Median: 4 / float64(step), Spread: 0.25, Far: []string{"a"}}}
		}
		for _, body := range []event.Body{s, s, event.Trained{Step: step, Batch: event.Batch{0, 4}, Tokens: 400, Seconds: 1}} {
			b.See(event.Event{Body: body})
		}
	}
	claimed := slices.DeleteFunc(rows, func(r metrics.Row) bool { _, found := r.Values["claimed/loss"]; return !found })
	if len(claimed) != 2 || claimed[0].Step != 1 || claimed[1].Step != 2 {
		t.Fatalf("rows %v", claimed)
	}
	for name, want := range map[string]float64{"claimed/loss": 2, "claimed/loss_spread": 0.25, "claimed/loss_claims": 3, "claimed/loss_far": 1} {
		if got := claimed[0].Values[name]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if v := b.Values(); v["claimed/loss"] != 4.0/3 || len(claimed[0].Values) != 4 {
		t.Errorf("values %v, row %v", v, claimed[0].Values)
	}
}

// TestHeldOut checks that each checkpoint with claims about its held-out loss has one row.
func TestHeldOut(t *testing.T) {
	b := metrics.New()
	var rows []metrics.Row
	b.Listen(func(r metrics.Row) { rows = append(rows, r) })
	h := &event.HeldOut{Step: 8, Digest: "ab", Loss: event.Claims{Count: 3, Median: 2.5, Spread: 0.25, Far: []string{"a"}}}
	for _, s := range []event.State{{}, {HeldOut: h}, {RunState: "Warmup", HeldOut: h}, {}} {
		b.See(event.Event{Body: s})
	}
	b.See(event.Event{Body: event.Trained{Step: 9, Batch: event.Batch{0, 4}, Tokens: 400, Seconds: 1}})
	want := map[string]float64{"held_out/loss": 2.5, "held_out/loss_spread": 0.25, "held_out/loss_claims": 3, "held_out/loss_far": 1}
	if len(rows) != 2 || rows[0].Step != 8 || !maps.Equal(rows[0].Values, want) || rows[1].Values["held_out/loss"] != 0 || b.Values()["held_out/loss"] != 2.5 {
		t.Errorf("rows %v, want one at step 8 with %v", rows, want)
	}
}

func TestHandler(t *testing.T) {
	b := metrics.New()
	train(b)
	b.See(event.Event{Body: event.Trained{Step: 4, Loss: event.Loss(math.NaN())}})
	b.See(event.Event{Body: event.Audit{Step: 3, Outcome: "nothing to audit"}})
	server := httptest.NewServer(b.Handler())
	defer server.Close()
	var values map[string]*float64
	if err := json.Unmarshal([]byte(get(t, server.URL+"/")), &values); err != nil {
		t.Fatal(err)
	}
	if values["train/lr"] == nil || *values["train/lr"] != 0.5 || values["train/loss"] != nil {
		t.Errorf("values %v", values)
	}
	text := get(t, server.URL+"/metrics")
	for _, want := range []string{"psyche_client_train_lr 0.5", "psyche_client_coordinator_epoch 2", "psyche_client_audits_nothing_to_audit 1", `psyche_client_eval{metric="acc",task="arc_easy"} 0.25`, "go_goroutines"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
}

func get(t *testing.T, address string) string {
	t.Helper()
	response, err := http.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s: got %s, %v; want nil error and response.StatusCode == http.StatusOK", address, response.Status, err)
	}
	return string(text)
}
