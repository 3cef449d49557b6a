package tracker_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/face/metrics"
	"github.com/psyche-go/psyche/face/tracker"
)

// fake is a sink whose results a test sets.
type fake struct {
	write  func(ctx context.Context, rows []metrics.Row) error
	closed bool
	steps  []uint32
}

func (f *fake) Write(ctx context.Context, rows []metrics.Row) error {
	if f.write != nil {
		if err := f.write(ctx, rows); err != nil {
			return err
		}
	}
	for _, row := range rows {
		f.steps = append(f.steps, row.Step)
	}
	return nil
}

func (f *fake) Close(context.Context) error {
	f.closed = true
	return nil
}

func give(feed *tracker.Feed, from, to uint32) {
	for step := from; step <= to; step++ {
		feed.Take(metrics.Row{Step: step})
	}
}

func inOrder(t *testing.T, steps []uint32, want int) {
	t.Helper()
	if len(steps) != want {
		t.Errorf("%d rows came, want %d", len(steps), want)
	}
	for i := 1; i < len(steps); i++ {
		if steps[i] <= steps[i-1] {
			t.Errorf("row %d came after %d", steps[i], steps[i-1])
		}
	}
}

func TestRowsCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		feed := tracker.Start("fake", f, 2*time.Second, slog.New(slog.DiscardHandler))
		give(feed, 1, 300)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := feed.Close(ctx); err != nil {
			t.Error(err)
		}
		inOrder(t, f.steps, 300)
		if !f.closed {
			t.Error("the sink was not closed")
		}
		feed.Take(metrics.Row{}) // too late: it is ignored
		if err := feed.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestSinksThatHang checks that a sink that accepts nothing does not delay the training.
func TestSinksThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fake{write: func(ctx context.Context, _ []metrics.Row) error {
			<-ctx.Done()
			return ctx.Err()
		}}
		var log bytes.Buffer
		feed := tracker.Start("fake", f, 0, slog.New(slog.NewTextHandler(&log, nil)))
		synctest.Wait()
		begun := time.Now()
		give(feed, 1, 5000)
		if took := time.Since(begun); took != 0 {
			t.Errorf("taking 5000 rows took %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := feed.Close(ctx); err == nil || time.Since(begun) > 11*time.Second {
			t.Errorf("ended after %v with %v", time.Since(begun), err)
		}
		if !strings.Contains(log.String(), "dropped=") {
			t.Errorf("not logged: %s", log.String())
		}
	})
}

// TestSinksThatFail has a sink that fails for a while and a sink that fails permanently.
func TestSinksThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		attempts := 0
		f := &fake{write: func(context.Context, []metrics.Row) error {
			if attempts++; attempts <= 5 {
				return errors.New("not now")
			}
			return nil
		}}
		feed := tracker.Start("fake", f, 0, slog.New(slog.DiscardHandler))
		give(feed, 1, 100)
		if err := feed.Close(t.Context()); err != nil {
			t.Error(err)
		}
		inOrder(t, f.steps, 100)

		g := &fake{write: func(context.Context, []metrics.Row) error { return tracker.ErrGivenUp }}
		feed = tracker.Start("fake", g, 0, slog.New(slog.DiscardHandler))
		give(feed, 1, 100)
		synctest.Wait()
		give(feed, 101, 5000)
		if err := feed.Close(t.Context()); err != nil || !g.closed || len(g.steps) != 0 {
			t.Errorf("closed: %v, %d rows, %v", g.closed, len(g.steps), err)
		}
	})
}

func TestJSONLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "metrics.jsonl")
	for step := uint32(1); step <= 2; step++ { // two processes, one after the other
		sink, err := tracker.JSONLines(path)
		if err != nil {
			t.Fatal(err)
		}
		row := metrics.Row{Time: time.Unix(5, 500_000_000), Step: step, Values: map[string]float64{"train/loss": 0.1, "train/perplexity": math.Inf(1)}}
		if err := errors.Join(sink.Write(t.Context(), []metrics.Row{row}), sink.Close(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var fields map[string]any
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &fields); err != nil || len(lines) != 2 {
		t.Fatalf("%v in\n%s", err, text)
	}
	if value, there := fields["train/perplexity"]; !there || value != nil || fields["train/loss"] != 0.1 || fields["_step"] != 2.0 || fields["_timestamp"] != 5.5 {
		t.Errorf("got %v; want there and value == nil and fields[\"train/loss\"] == 0.1 and fields[\"_step\"] == 2.0 and fields[\"_timestamp\"] == 5.5", fields)
	}
}
