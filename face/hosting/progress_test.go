package hosting

import (
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/event"
)

// TestProgressWithoutLoss checks that a client which has not trained yet reports no loss.
func TestProgressWithoutLoss(t *testing.T) {
	var out strings.Builder
	p := &progress{out: &out}
	p.see(event.Event{Time: time.Now(), Body: event.Applied{Step: 25}})
	if strings.Contains(out.String(), "loss") {
		t.Errorf("got %q", out.String())
	}
}

// TestCommandOfTheResult checks that a shell reads the printed path as one word.
func TestCommandOfTheResult(t *testing.T) {
	const path = "/tmp/it's $(a) \"run\""
	var out strings.Builder
	p := &progress{out: &out, saved: path}
	p.state(event.State{RunState: coordinator.Finished.String()})
	p.end()
	_, line, found := strings.Cut(out.String(), "psyche-client generate")
	if !found {
		t.Fatalf("got %q", out.String())
	}
	line, _, _ = strings.Cut(line, "\n")
	words, err := exec.Command("sh", "-c", "printf '%s|'"+line).Output()
	if want := "--model|" + path + "|--prompt|The |"; err != nil || string(words) != want {
		t.Errorf("%v, got %q, want %q", err, words, want)
	}
}

// TestTimeLeft checks that a line about a round has the time left, and that a pause does not change it.
func TestTimeLeft(t *testing.T) {
	var out strings.Builder
	p, at := &progress{out: &out}, time.Unix(1000, 0)
	see := func(seconds time.Duration, body event.Body) {
		at = at.Add(seconds * time.Second)
		p.see(event.Event{Time: at, Body: body})
	}
	for step := uint32(1); step <= 6; step++ {
		see(0, event.State{RunState: "RoundTrain", Step: step, TotalSteps: 36})
		see(10, event.Applied{Step: step})
		if step == 2 {
			see(0, event.State{RunState: "Paused", Step: 3, TotalSteps: 36})
			see(1000, event.State{RunState: "WaitingForMembers", Step: 3, TotalSteps: 36})
		}
	}
	if got := out.String(); !strings.HasSuffix(got, "round 6 of 36, 5 min left\n") {
		t.Errorf("got %s", got)
	}
}
