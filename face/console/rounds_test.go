package console

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/face/metrics"
	"github.com/psyche-go/psyche/record/event"
)

// TestRounds checks that each round has one line with the values that users look for, and with
// the remaining time as soon as it can be estimated.
func TestRounds(t *testing.T) {
	var log bytes.Buffer
	board := metrics.New()
	line := NewRounds(slog.New(slog.NewTextHandler(&log, nil)), board.Values, false)
	at := time.Unix(1000, 0)
	see := func(body event.Body) {
		e := event.Event{Time: at, Body: body}
		board.See(e)
		line.See(e)
	}
	for step := uint32(1); step <= 6; step++ {
		state := event.State{RunState: "RoundTrain", Epoch: 2, Step: step, TotalSteps: 100, EpochStart: 2, EpochRounds: 4, BatchSize: 4, DataIndex: 4 * uint64(step-1)}
		if step > 1 {
			state.Claimed = &event.Claimed{Step: step - 1, Loss: event.Claims{Count: 3, Median: 2.5}}
		}
		see(state)
		if step < 6 {
			see(event.Trained{Step: step, Batch: event.Batch{0, 1}, Loss: 2.71234, Tokens: 512, Seconds: 1})
		}
		state.Witnesses = 1
		see(state) // the same round
		applied := event.Applied{Step: step, Counted: 4}
		if step == 5 {
			applied.Counted, applied.Lost = 3, make([]event.LostBatch, 1)
		}
		see(applied)
		at = at.Add(time.Duration(step) * time.Second)
	}
	got := strings.Split(strings.TrimSpace(log.String()), "\n")
	want := []string{
		`"step 1 of 100 (1 %), epoch 2, loss 2.7123"`,
		`"step 2 of 100 (2 %), epoch 2 (25 %), loss 2.7123, 2.05 k tok/s"`,
		`"step 3 of 100 (3 %), epoch 2 (50 %), loss 2.7123, 1.37 k tok/s"`,
		`"step 4 of 100 (4 %), epoch 2 (75 %), loss 2.7123, 1.02 k tok/s, 3 min left (2 min to 5 min)"`,
		`"step 5 of 100 (5 %), epoch 2 (100 %), loss 2.7123, 819 tok/s, 1 of 4 results lost, 4 min left (3 min to 6 min)"`,
		`"step 6 of 100 (6 %), epoch 2, loss 2.5000, as other members report for step 5, 819 tok/s, 5 min left (3 min to 6 min)"`,
	}
	if len(got) != len(want) {
		t.Fatalf("%d lines of %d rounds:\n%s", len(got), len(want), &log)
	}
	for i, line := range got {
		if !strings.HasSuffix(line, "level=INFO msg="+want[i]) {
			t.Errorf("%s\nwant %s", line, want[i])
		}
	}
	log.Reset()
	line.fields = true
	see(event.Applied{Step: 7, Counted: 4})
	if got, want := log.String(), "msg=round step=7 of=100 epoch=2 counted=4 lost=0 claimed_loss=2.5 claimed_step=5 tokens_per_second=819.2\n"; !strings.HasSuffix(got, want) {
		t.Errorf("%s\nwant %s", got, want)
	}
	if len(line.losses) > 0 {
		t.Errorf("losses of finished rounds are kept: %v", line.losses)
	}
}

func TestShortNumber(t *testing.T) {
	for value, want := range map[float64]string{0.25: "0.25", 7: "7", 12.34: "12.3", 100: "100", 999.9: "1 k", 1234: "1.23 k", 56789: "56.8 k", 4e6: "4 M", 2.5e12: "2500 G"} {
		if got := shortNumber(value); got != want {
			t.Errorf("%v: %s, want %s", value, got, want)
		}
	}
}
