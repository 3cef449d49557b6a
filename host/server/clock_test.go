package server

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestSteadyClockGoesOnFromItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		now := steadyClock(start)
		time.Sleep(90*time.Second + 250*time.Millisecond)
		if got, want := now(), uint64(start.UnixMilli())+90_250; got != want {
			t.Errorf("after 90.25 s: %d, want %d", got, want)
		}
	})
}
