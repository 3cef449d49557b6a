package clocktest

import (
	"testing"
	"time"
)

func TestJump(t *testing.T) {
	for _, by := range []time.Duration{time.Hour, -time.Hour, 0} {
		now := time.Now()
		later := Jump(now, by)
		if !isMonotonic(later) || later.Sub(now) != 0 || later.Round(0).Sub(now.Round(0)) != by || later.Add(time.Minute).Sub(now) != time.Minute {
			t.Errorf("%v: %v and %v", by, now, later)
		}
		for _, without := range []time.Time{now.Round(0), time.UnixMilli(now.UnixMilli()), {}} {
			if isMonotonic(without) || Jump(without, by).Sub(without) != by {
				t.Errorf("%v has a monotonic clock", without)
			}
		}
	}
}
