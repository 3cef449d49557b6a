package dash_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash/dashtest"
	"github.com/psyche-go/psyche/face/dash/history"
	"github.com/psyche-go/psyche/record/receipt"
)

// TestPageMatchesReceipts checks that the page's data counts the results of each member as its receipt does, also for a member
// that joined late and was on probation.
func TestPageMatchesReceipts(t *testing.T) {
	o := dashtest.Options{RunID: "late", Members: 5, Rounds: 20, RoundsPerEpoch: 5, Silent: 4, Late: 3, Probation: 8}
	web := page(t, o)
	var run struct {
		History struct {
			Tokens  uint64
			Members []history.Member
		}
	}
	if err := json.Unmarshal([]byte(ask(t, web.URL+"/api/run?run=late", nil).body), &run); err != nil {
		t.Fatal(err)
	}
	if len(run.History.Members) != o.Members {
		t.Fatalf("the page has %d members", len(run.History.Members))
	}
	books := map[string]*receipt.Book{}
	for n := range o.Members {
		books[dashtest.Key(n).ID().String()] = receipt.NewBook(dashtest.Key(n).ID())
	}
	err := dashtest.Play(o, func(e history.Entry, s *coordinator.State) error {
		entry := receipt.Entry{Time: e.Time, Actor: e.Actor, Action: e.Action}
		if e.Number == 0 {
			entry.Run = [32]byte{1}
		}
		for _, b := range books {
			b.See(entry, s)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range run.History.Members {
		r := books[m.ID].Receipt()
		got := fmt.Sprintf("%d rounds, %.4f of all tokens", m.Counted, float64(m.Tokens)/float64(run.History.Tokens))
		if want := fmt.Sprintf("%d rounds, %.4f of all tokens", r.Rounds, r.Share()); got != want {
			t.Errorf("the page shows %s for %s; its receipt has %s", got, m.ID, want)
		}
		if m.ID == dashtest.Key(o.Late).ID().String() && (m.Probation == 0 || m.Counted >= m.Assigned) {
			t.Errorf("the member that joined late: %+v", m)
		}
	}
}
