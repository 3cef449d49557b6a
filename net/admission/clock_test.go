package admission

import (
	"testing"
	"time"
)

// TestBudgetIgnoresTheWallClock checks that a budget records the time at which members took from it
// with a reading of the monotonic clock. Otherwise other clients would wait longer after the wall
// clock was set back.
func TestBudgetIgnoresTheWallClock(t *testing.T) {
	b := NewReservedBudget(1000, 1000, 2)
	if b.membersTake() {
		t.Error("membersTake is true before a member takes")
	}
	if err := b.TakeFirst(t.Context(), nil, 1); err != nil {
		t.Fatal(err)
	}
	if taken := *b.taken.Load(); taken == taken.Round(0) || !b.membersTake() { //nolint:revive,staticcheck // == also compares the monotonic clock
		t.Errorf("%v has no monotonic clock", taken)
	}
	old := time.Now().Add(-memberPause)
	if b.taken.Store(&old); b.membersTake() {
		t.Error("membersTake is true after the pause")
	}
}
