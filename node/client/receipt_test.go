package client

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/record/event"
	"github.com/psyche-go/psyche/record/receipt"
)

// TestCountedMatchesReceipt compares the counted results in the events of clients with their
// receipts. The closing message of a client summarizes the same events, and the model card of a member
// that was there from the start has the same numbers. One client joins late, on probation.
func TestCountedMatchesReceipt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(2)
		config.ProbationSteps, config.TotalSteps = 4, 15
		w := newWorld(t, config)
		var books []*receipt.Book
		for n := range 3 {
			books = append(books, receipt.NewBook(clienttest.Key(n).ID()))
		}
		first := receipt.Entry{Run: [32]byte{1}}
		see := func(s *coordinator.State) {
			for _, book := range books {
				book.See(first, s)
			}
			first = receipt.Entry{}
		}
		saves := func(o *options) { o.CheckpointDir, o.Name = filepath.Join(w.dir, "disk"), "Ada" }
		members := []*member{w.launch(0, saves), w.launch(1, nil)}
		w.until("second round", func(s *coordinator.State) bool { see(s); return s.Progress.Step == 2 })
		members = append(members, w.launch(2, nil))
		w.until("the end", func(s *coordinator.State) bool { see(s); return s.RunState == coordinator.Finished })
		finishEqual(w, members...)
		cards, err := filepath.Glob(filepath.Join(w.dir, "disk", "*-step15", "README.md"))
		if err != nil || len(cards) != 1 {
			t.Fatalf("%d model cards, %v", len(cards), err)
		}
		card, err := os.ReadFile(cards[0])
		if err != nil || !strings.Contains(string(card), "counted in rounds 1 to 15. ") {
			t.Errorf("%v; the card is\n%s", err, card)
		}
		for n, m := range members {
			trained, counted, attested, waits := len(all[event.Trained](m)), 0, 0, uint32(0)
			for _, e := range all[event.Applied](m) {
				if e.OwnCounted {
					counted++
				}
				if e.OwnAttested {
					attested++
				}
			}
			for _, e := range all[event.State](m) {
				waits = max(waits, e.Probation)
			}
			late := n == 2 // it may miss a part of its probation
			if late != (waits > 0) || late != (attested > 0) || max(waits, uint32(attested)) > config.ProbationSteps || counted+attested > trained {
				t.Errorf("client %d reports up to %d rounds of probation, and of %d results %d counted and %d that did not count yet", n, waits, trained, counted, attested)
			}
			if r := books[n].Receipt(); int(r.Rounds) != counted || counted == 0 {
				t.Errorf("client %d reports %d counted results, its receipt has %d", n, counted, r.Rounds)
			}
			name := map[int]string{0: "Ada"}[n]
			if line := fmt.Sprintf("| %s | `%s` | %d | %.1f %% |\n", name, m.id, counted, 100*books[n].Receipt().Share()); !strings.Contains(string(card), line) {
				t.Errorf("no line %q in\n%s", line, card)
			}
			if n == 2 && trained == counted {
				t.Errorf("the late client reports %d results and %d counted results, so it was not on probation", trained, counted)
			}
		}
	})
}
