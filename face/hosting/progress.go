package hosting

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/console"
	"github.com/psyche-go/psyche/record/event"
)

// progress prints the progress of the host's client, from its events.
type progress struct {
	out   io.Writer
	since time.Time // earlier events are not printed
	link  string    // of the run, for a shell
	total uint32    // rounds of the run

	phase   string // newest phase
	members int
	step    uint32
	loss    float64   // of the newest batch; 0: none yet
	printed time.Time // of the last round
	pace    console.Pace
	saved   string // folder of the newest checkpoint
	over    bool   // the run is finished
}

// roundPause is the least time between two lines about rounds.
const roundPause = 10 * time.Second

// follow prints events until ctx ends. If the log is unreadable, follow ends, and the run continues.
func (p *progress) follow(ctx context.Context, path string) {
	for e, err := range event.Follow(ctx, path) {
		if err != nil {
			p.printf("cannot show further progress: %v", err)
			return
		}
		p.see(e)
	}
}

func (p *progress) see(e event.Event) {
	if body, ok := e.Body.(event.Checkpoint); ok && body.Dir != "" {
		p.saved = body.Dir
	}
	if e.Time.Before(p.since) {
		return
	}
	switch body := e.Body.(type) {
	case event.State:
		p.pace.See(e.Time, body)
		p.state(body)
	case event.Trained:
		p.loss = float64(body.Loss)
	case event.Applied:
		p.round(e.Time, body.Step)
	}
}

// state prints changes of the phase and of the members.
func (p *progress) state(s event.State) {
	if s.TotalSteps > 0 {
		p.total = s.TotalSteps
	}
	waits := coordinator.WaitingForMembers.String()
	switch {
	case s.RunState == coordinator.Finished.String():
		p.over = true
	case s.RunState == waits && p.phase != waits:
		p.printf("waiting for members")
	case s.RunState == coordinator.RoundTrain.String() && len(s.Members) != p.members:
		p.members = len(s.Members)
		outside := "; this machine joins at the next epoch"
		if s.IsMember {
			outside = ""
		}
		p.printf("members: %d%s", p.members, outside)
	}
	p.phase = s.RunState
}

// round prints a finished round from time to time.
func (p *progress) round(at time.Time, step uint32) {
	p.step = step
	if at.Sub(p.printed) < roundPause && step < p.total {
		return
	}
	p.printed = at
	left := ""
	if step < p.total {
		if text := p.pace.Text(p.total - step); text != "" {
			left = ", " + text
		}
	}
	loss := "" // a client that receives the result of its first round has no loss yet
	if p.loss > 0 {
		loss = fmt.Sprintf(": loss %.3f", p.loss)
	}
	p.printf("round %d of %d%s%s", step, p.total, loss, left)
}

// end prints the result of a finished run.
func (p *progress) end() {
	if !p.over || p.saved == "" {
		return
	}
	p.printf("the run is finished; the model is %s", p.saved)
	_, _ = fmt.Fprintf(p.out, "\nTry it:\n\n    psyche-client generate --model %s --prompt 'The '\n\nUntil Ctrl-C, the page stays, and friends can use the model:\n\n    psyche-client generate %s --prompt 'The '\n", forShell(p.saved), p.link)
}

// forShell quotes a text as one word for a shell.
func forShell(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

func (p *progress) printf(format string, args ...any) {
	_, _ = fmt.Fprintf(p.out, time.Now().Format(time.TimeOnly)+"  "+format+"\n", args...)
}
