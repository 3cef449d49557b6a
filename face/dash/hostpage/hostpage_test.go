package hostpage

import (
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"testing"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/tui"
	"github.com/psyche-go/psyche/record/event"
)

// TestMoving checks that downloads and uploads in a member's event log reach the
// page, under the correct run.
func TestMoving(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "client-1"), 0o755); err != nil {
		t.Fatal(err)
	}
	log, err := event.Open(filepath.Join(dir, "client-1", "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	arrives := event.Transfer{What: event.TransferModel, Step: 7, Bytes: 1, Total: 4}
	uploads := event.Transfer{What: event.TransferUpload, Step: 5, Bytes: 3, Total: 4}
	for _, body := range []event.Body{event.Started{Role: "client", ID: "member", RunID: "quickstart"}, arrives, uploads} {
		if err := log.Append(body); err != nil {
			t.Fatal(err)
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	page, err := New(t.Context(), "", []string{filepath.Join(dir, "*", "events.jsonl")}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer page.Close()
	page.See(&coordinator.State{RunID: "quickstart"})
	page.SetParameters("quickstart", 1<<20)
	if runs := page.Runs(); len(runs) != 1 || runs[0].Join.Parameters != 1<<20 {
		t.Errorf("the page shows %+v", runs)
	}
	want := map[string][]tui.Moving{"quickstart": {{Member: "member", Transfer: arrives}, {Member: "member", Transfer: uploads}}}
	var got map[string][]tui.Moving
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if got = page.Moving(); reflect.DeepEqual(got, want) {
			return
		}
	}
	t.Errorf("got %+v, want %+v", got, want)
}
