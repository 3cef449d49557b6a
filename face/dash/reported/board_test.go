package reported_test

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"path/filepath"
	"testing"
	"time"

	"github.com/psyche-go/psyche/face/dash/reported"
	"github.com/psyche-go/psyche/record/event"
)

func trained(step uint32, loss float64) event.Event {
	return event.Event{Time: time.Unix(int64(step), 0), Body: event.Trained{Step: step, Loss: event.Loss(loss), Tokens: 100, Seconds: 0.5}}
}

func TestLossIsTheMeanOfMembers(t *testing.T) {
	b := reported.New()
	b.See("a", trained(1, 4))
	b.See("b", trained(1, 6))
	b.See("b", trained(2, math.NaN()))
	b.See("a", event.Event{Body: event.Evaluated{Step: 2, Task: "arc", Scores: map[string]float64{"acc": 0.5, "bad": math.Inf(1)}}})
	shown := b.Show(100)
	if len(shown.Points) != 1 || shown.Points[0].Loss != 5 || shown.Points[0].Step != 1 {
		t.Errorf("points: %+v", shown.Points)
	}
	if len(shown.Members) != 2 || shown.Members[1].Loss != -1 || shown.Members[1].Speed != 200 || shown.Members[1].Trained != 2 {
		t.Errorf("members: %+v", shown.Members)
	}
	if len(shown.Tasks) != 1 || shown.Tasks["arc/acc"][0].Value != 0.5 {
		t.Errorf("tasks: %+v", shown.Tasks)
	}
}

// TestAudits checks that the audits that a member reports are counted by outcome.
func TestAudits(t *testing.T) {
	b := reported.New()
	for n := range 40 {
		outcome := "passed"
		if n%2 == 1 {
			outcome = fmt.Sprint("?", n)
		}
		b.See("a", event.Event{Body: event.Audit{Step: uint32(n), Outcome: outcome}})
	}
	if audits := b.Show(1).Members[0].Audits; audits["passed"] != 20 || audits["?1"] != 1 || len(audits) != 8 {
		t.Errorf("audits: %v", audits)
	}
}

// TestTransfersAreShownUntilTheyEnd checks that a member's transfers are shown until they end.
func TestTransfersAreShownUntilTheyEnd(t *testing.T) {
	part := func(subject string) event.Transfer {
		return event.Transfer{What: subject, Step: 8, Bytes: 1, Total: 4}
	}
	whole := func(subject string) event.Transfer {
		return event.Transfer{What: subject, Step: 8, Bytes: 4, Total: 4}
	}
	down, up := part(event.TransferDownload), part(event.TransferUpload)
	for name, test := range map[string]struct {
		then             []event.Body
		arrives, uploads bool
	}{
		"both":                  {nil, true, true},
		"the model is here":     {[]event.Body{event.Ready{Step: 8, Source: "archive"}}, false, true},
		"all of it came":        {[]event.Body{whole(event.TransferDownload)}, false, true},
		"another way":           {[]event.Body{whole(event.TransferDownload), part(event.TransferResults)}, true, true},
		"it is uploaded":        {[]event.Body{whole(event.TransferUpload)}, true, false},
		"nobody knows the kind": {[]event.Body{whole("?")}, true, true},
		"it gave up":            {[]event.Body{event.Failed{Error: "x"}}, false, false},
		"it ended":              {[]event.Body{event.Finished{Step: 9}}, false, false},
		"it began anew":         {[]event.Body{event.Started{Role: "client", ID: "a"}}, false, false},
	} {
		b := reported.New()
		for _, body := range append([]event.Body{down, up}, test.then...) {
			b.See("a", event.Event{Body: body})
		}
		m := b.Show(100).Members[0]
		if (m.Arrives != nil) != test.arrives || (m.Uploads != nil) != test.uploads {
			t.Errorf("%s: arrives %+v, uploads %+v", name, m.Arrives, m.Uploads)
		}
		if moving := b.Moving(); (len(moving) == 1) != (test.arrives || test.uploads) {
			t.Errorf("%s: %+v move", name, moving)
		}
	}
}

// TestBounds checks that the writer of an event log cannot make a board grow without bound.
func TestBounds(t *testing.T) {
	b := reported.New()
	for n := range 20_000 {
		b.See(fmt.Sprintf("m%d", n%3000), trained(uint32(n*7), 3))
		b.See("m1", event.Event{Body: event.Evaluated{Step: uint32(n), Task: fmt.Sprintf("t%d", n%200), Scores: map[string]float64{"acc": 1}}})
		b.See("m1", event.Event{Body: event.Failed{Error: "x"}})
	}
	shown := b.Show(1 << 20)
	if len(shown.Points) > 4096 || len(shown.Members) > 512 || len(shown.Tasks) > 64 || len(shown.Notices) > 300 {
		t.Errorf("%d points, %d members, %d tasks, %d notices", len(shown.Points), len(shown.Members), len(shown.Tasks), len(shown.Notices))
	}
	if few := b.Show(100); len(few.Points) > 100 || few.Points[len(few.Points)-1].Loss != 3 {
		t.Errorf("%d points, want 100", len(few.Points))
	}
}

// TestFollow checks that a client's log counts for its run, and that a server's log does not.
func TestFollow(t *testing.T) {
	dir := t.TempDir()
	for _, role := range []string{"client", "server"} {
		log, err := event.Open(filepath.Join(dir, role))
		if err != nil {
			t.Fatal(err)
		}
		for _, body := range []event.Body{event.Started{Role: role, ID: role, RunID: "r"}, event.Trained{Step: 1, Loss: 2, Tokens: 1, Seconds: 1}} {
			if err := log.Append(body); err != nil {
				t.Fatal(err)
			}
		}
		if err := log.Close(); err != nil {
			t.Fatal(err)
		}
	}
	b := reported.New()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // the file is read to its end
	for _, role := range []string{"client", "server"} {
		reported.Follow(ctx, filepath.Join(dir, role), func(runID string) *reported.Board {
			if runID != "r" {
				t.Errorf("run %q", runID)
			}
			return b
		}, slog.New(slog.DiscardHandler))
	}
	if shown := b.Show(10); len(shown.Members) != 1 || shown.Members[0].ID != "client" {
		t.Errorf("members: %+v", shown.Members)
	}
}
