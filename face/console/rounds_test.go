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

// TestHeldOutLoss checks that the held-out loss of each checkpoint has one line.
func TestHeldOutLoss(t *testing.T) {
	for fields, want := range map[bool]string{
		false: `msg="claimed held-out loss 2.500 ± 0.000: step 8, 3 members"`,
		true:  `msg="held-out loss" step=8 claimed_loss=2.5 claims=3`,
	} {
		var log bytes.Buffer
		line := NewRounds(slog.New(slog.NewTextHandler(&log, nil)), func() map[string]float64 { return nil }, fields)
		for range 2 {
			line.See(event.Event{Body: event.State{HeldOut: &event.HeldOut{Step: 8, Digest: "ab", Loss: event.Claims{Count: 3, Median: 2.5}}}})
		}
		if got := log.String(); !strings.HasSuffix(got, want+"\n") || strings.Count(got, "\n") != 1 {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

func TestShortNumber(t *testing.T) {
	for value, want := range map[float64]string{0.25: "0.25", 7: "7", 12.34: "12.3", 100: "100", 999.9: "1 k", 1234: "1.23 k", 56789: "56.8 k", 4e6: "4 M", 2.5e12: "2500 G"} {
		if got := shortNumber(value); got != want {
			t.Errorf("%v: %s, want %s", value, got, want)
		}
	}
}

// TestRoundsOnProbation checks that a newcomer reads why its work does not count, and when it will.
func TestRoundsOnProbation(t *testing.T) {
	var log bytes.Buffer
	line := NewRounds(slog.New(slog.NewTextHandler(&log, nil)), func() map[string]float64 { return nil }, false)
	round := func(step, left uint32, e event.Applied) string {
		log.Reset()
		line.See(event.Event{Body: event.State{RunState: "RoundTrain", Step: step, TotalSteps: 9, Probation: left}})
		e.Step, e.Counted, e.Lost = step, 1, make([]event.LostBatch, 1)
		line.See(event.Event{Body: e})
		return log.String()
	}
	for _, test := range []struct {
		step, left uint32
		applied    event.Applied
		want       string
	}{
		{1, 2, event.Applied{Attested: 1, OwnAttested: true}, "epoch 0, on probation, 2 rounds to go: your work is checked but not counted yet\""},
		{2, 1, event.Applied{}, "epoch 0, 1 of 2 results lost, on probation, 1 round to go: your work is checked but not counted yet\""},
		{3, 0, event.Applied{Attested: 1, OwnAttested: true}, "epoch 0, probation is over: from now on, your work counts\""},
		{4, 0, event.Applied{Attested: 1, OwnAttested: true}, "epoch 0, your work was checked but not counted, because your optimizer warms up\""},
		{5, 0, event.Applied{}, "epoch 0, 1 of 2 results lost\""},
	} {
		if got := round(test.step, test.left, test.applied); !strings.Contains(got, test.want) {
			t.Errorf("step %d: %s\nwant %s", test.step, got, test.want)
		}
	}
	line.fields = true
	if got := round(6, 4, event.Applied{Attested: 1}); !strings.Contains(got, "lost=0 not_counted_yet=1 probation_rounds=4") {
		t.Error(got)
	}
}

// TestRoundsOfDroppedMember checks that a member that was dropped during its probation does not read that its work counts.
func TestRoundsOfDroppedMember(t *testing.T) {
	var log bytes.Buffer
	line := NewRounds(slog.New(slog.NewTextHandler(&log, nil)), func() map[string]float64 { return nil }, false)
	for left := range uint32(2) {
		line.See(event.Event{Body: event.State{RunState: "RoundTrain", Step: 3, TotalSteps: 9, Probation: 1 - left}})
	}
	line.See(event.Event{Body: event.Applied{Step: 3, Counted: 2}})
	if strings.Contains(log.String(), "probation is over") {
		t.Error(log.String())
	}
}
