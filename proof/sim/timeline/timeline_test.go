package timeline_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/proof/sim/timeline"
)

// TestOrder inserts events, some of them during other events. Events must happen in the order of
// their times; events with equal times in the order of their insertion.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		type event struct {
			at     int64
			number int
		}
		var q timeline.Queue
		var put, came []event
		add := func(at int64) {
			e := event{at, len(put)}
			put = append(put, e)
			q.Put(at, func() { came = append(came, e) })
		}
		for _, at := range rapid.SliceOfN(rapid.Int64Range(0, 9), 1, 40).Draw(r, "at") {
			add(at)
		}
		late := rapid.SliceOfN(rapid.Int64Range(0, 9), 0, 20).Draw(r, "later by")
		for q.Len() > 0 {
			at, call := q.Take()
			call()
			if came[len(came)-1].at != at {
				r.Fatalf("an event of %d came at %d", came[len(came)-1].at, at)
			}
			if len(late) > 0 {
				add(at + late[0])
				late = late[1:]
			}
		}
		slices.SortStableFunc(put, func(a, b event) int { return int(a.at - b.at) })
		if !slices.Equal(came, put) {
			r.Fatalf("came %v, want %v", came, put)
		}
	})
}
