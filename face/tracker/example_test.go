package tracker_test

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/psyche-go/psyche/face/metrics"
	"github.com/psyche-go/psyche/face/tracker"
	"github.com/psyche-go/psyche/record/event"
)

// printer is a sink that prints losses.
type printer struct{}

func (printer) Write(_ context.Context, rows []metrics.Row) error {
	for _, row := range rows {
		fmt.Printf("step %d: loss %.2f\n", row.Step, row.Values["train/loss"])
	}
	return nil
}

func (printer) Close(context.Context) error { return nil }

// docs/add-a-tracker.md refers to this sink.
func Example() {
	board := metrics.New()
	feed := tracker.Start("printer", printer{}, 0, slog.New(slog.DiscardHandler))
	board.Listen(feed.Take)

	board.See(event.Event{Time: time.Now(), Body: event.Trained{Step: 1, Batch: event.Batch{0, 4}, Loss: 5.25, Tokens: 1024, Seconds: 0.5}})
	if err := feed.Close(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output: step 1: loss 5.25
}
