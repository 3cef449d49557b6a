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
		time.Sleep(90 * time.Second)
		if got, want := now(), uint64(start.Unix())+90; got != want {
			t.Errorf("after 90 s: %d, want %d", got, want)
		}
	})
}
