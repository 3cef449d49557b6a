package core

import (
	"testing"
	"time"
)

// TestLeavingTakesLongerForLargeModels checks that leaving may take longer in proportion to the
// size of the model, within limits, and only while the member works on it.
func TestLeavingTakesLongerForLargeModels(t *testing.T) {
	begun := time.Unix(100, 0)
	for _, test := range []struct {
		bytes  int
		copies time.Duration // time until the model is copied
		want   time.Duration
	}{
		{1, 0, 5 * time.Second},
		{20 * SlowHash, 0, 20 * time.Second},
		{20 * SlowHash, 8 * time.Second, 28 * time.Second},
		{1 << 40, 0, longestLeave},
		{1, 2 * longestLeave, longestLeave},
	} {
		var l Leave
		if l.Begun() {
			t.Error("a member leaves at once")
		}
		if l.Begin(begun, 5*time.Second); !l.Begun() || l.late(begun.Add(5*time.Second-1)) || !l.late(begun.Add(5*time.Second)) {
			t.Error("wrong time limit")
		}
		stays := func(after time.Duration, working bool) bool {
			_, stays := l.Extend(begun.Add(after), after < test.copies, working, test.bytes)
			return stays
		}
		if test.copies > 0 {
			stays(min(test.copies-1, test.want), false)
			l.copied = min(test.copies, longestLeave)
		}
		if !stays(test.want-1, true) {
			t.Errorf("%+v: it leaves too early", test)
		}
		if test.copies == 0 && stays(test.want-1, false) {
			t.Errorf("%+v: it waits without a reason", test)
		}
		if stays(test.want, true) {
			t.Errorf("%+v: it waits too long", test)
		}
	}
}

// TestReminders checks that a leaving member reports its delay at once, and then every five seconds.
func TestReminders(t *testing.T) {
	var l Leave
	begun := time.Unix(100, 0)
	l.Begin(begun, time.Second)
	var due []time.Duration
	for after := time.Second; after < 13*time.Second; after += time.Second {
		if passed, is := l.remind(begun.Add(after)); is {
			due = append(due, passed/time.Second)
		}
	}
	if len(due) != 3 || due[0] != 1 || due[1] != 6 || due[2] != 11 {
		t.Errorf("reminders after %v", due)
	}
}

// TestOutlook checks that a speculation must pay, and that each misprediction doubles the pause
// before the next one, within limits.
func TestOutlook(t *testing.T) {
	o := Outlook{Took: 4 * time.Second, Trains: time.Second}
	if o.pays(1, time.Minute) {
		t.Error("it saves no time")
	}
	if o.Wait = 2 * time.Second; !o.pays(1, 5*time.Second) || o.pays(1, 5*time.Second-1) {
		t.Error("the leeway does not count")
	}
	if o.Failed(1); o.pays(firstPause, time.Minute) || !o.pays(firstPause+1, time.Minute) {
		t.Error("no pause after a failure")
	}
	step := uint32(100)
	for i := range maxDoublings + 3 {
		pause := uint32(firstPause << min(i, maxDoublings))
		if o.erred(step); o.pays(step+pause-1, time.Minute) || !o.pays(step+pause, time.Minute) {
			t.Errorf("misprediction %d: not a pause of %d rounds", i+1, pause)
		}
	}
}
