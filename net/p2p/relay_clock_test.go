package p2p

import (
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/clocktest"
)

// TestReservationOutlastsAClockJump checks that a reservation at a relay ends in time if the clock
// of this machine is set, or if the relay's clock is wrong.
func TestReservationOutlastsAClockJump(t *testing.T) {
	now := time.Now()
	ends := reservationEnds(now, time.Unix(now.Add(reservationTTL).Unix(), 0), false)
	for _, jump := range []time.Duration{time.Hour, -time.Hour, 24 * time.Hour, -24 * time.Hour} {
		if early := clocktest.Jump(now.Add(reservationTTL-2*time.Second), jump); !early.Before(ends) {
			t.Errorf("after %v the reservation ends early", jump)
		}
		if late := clocktest.Jump(now.Add(reservationTTL), jump); late.Before(ends) {
			t.Errorf("after %v the reservation ends late", jump)
		}
	}
	if ends := reservationEnds(now, now.Add(time.Minute), false); ends.Sub(now) != time.Minute {
		t.Errorf("a configured relay with short reservations gives %v", ends.Sub(now))
	}
	if ends := reservationEnds(now, now.Add(time.Minute), true); ends.Sub(now) != reservationTTL {
		t.Errorf("a member whose clock is slow gives a reservation of %v", ends.Sub(now))
	}
	if ends := reservationEnds(now, now.Add(24*time.Hour), false); ends.Sub(now) != reservationTTL {
		t.Errorf("a relay whose clock is ahead gives a reservation of %v", ends.Sub(now))
	}
}
