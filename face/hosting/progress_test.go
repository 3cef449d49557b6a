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
