package history_test

import (
	"fmt"
	"testing"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash/dashtest"
	"github.com/psyche-go/psyche/face/dash/history"
	"github.com/psyche-go/psyche/record/receipt"
)

// lateRun has a member that joins in the third round and is on probation for eight steps of the next epoch, and
// members whose results are lost.
var lateRun = dashtest.Options{RunID: "late", Members: 5, Rounds: 20, RoundsPerEpoch: 5, Silent: 4, Late: 3, Probation: 8}

// TestMembersMatchReceipts checks that the page's data about each member equals its receipt.
func TestMembersMatchReceipts(t *testing.T) {
	for _, o := range []dashtest.Options{lateRun, troubled, judged} {
		t.Run(o.RunID, func(t *testing.T) {
			var h history.History
			books := make([]*receipt.Book, o.Members)
			for n := range books {
				books[n] = receipt.NewBook(dashtest.Key(n).ID())
			}
			err := dashtest.Play(o, func(e history.Entry, s *coordinator.State) error {
				h.See(e, s)
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
			for n, b := range books {
				r, m := b.Receipt(), h.Members[member(n)]
				want := fmt.Sprintf("%d rounds, %d of %d tokens, %d proofs, %d votes", r.Rounds, r.Tokens, r.AllTokens, r.Witnessed, r.Voted)
				if got := fmt.Sprintf("%d rounds, %d of %d tokens, %d proofs, %d votes", m.Counted, m.Tokens, h.Tokens, m.Witnessed, m.Voted); got != want {
					t.Errorf("member %d: the page shows %s; its receipt has %s", n, got, want)
				}
			}
			if late := h.Members[member(o.Late)]; o.Late > 0 && (late.Probation == 0 || late.Counted == 0 || late.Counted+late.Probation+late.Lost != late.Assigned) {
				t.Errorf("the member that joined late: %+v", late)
			}
		})
	}
}
