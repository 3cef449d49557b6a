package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/memory"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/tally"
)

// dawdler says neither that it is ready nor what model it holds.
type dawdler struct{ *memory.Client }

func (d dawdler) Submit(ctx context.Context, a coordinator.Action) error {
	switch a.(type) {
	case coordinator.Ready, coordinator.ReportCheckpoint:
		return errors.New("not now")
	}
	return d.Client.Submit(ctx, a)
}

// TestOneMemberDoesNotSetThePace has one of five members deliver valid results just before the
// rounds' time is over. In each epoch two rounds wait for it, as long as witnesses do.
func TestOneMemberDoesNotSetThePace(t *testing.T) {
	took := map[bool]time.Duration{}
	for _, slow := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			config := clienttest.Config(5)
			config.WarmupTime, config.CooldownTime = 1000, 1000 // it makes the others wait for these as well
			w := newWorld(t, config)
			var members []*member
			begun := time.Now()
			for i := range 5 {
				members = append(members, w.launch(i, func(o *options) {
					o.trainer.Duration = time.Second
					if slow && i == 4 {
						o.trainer.Duration = 19 * time.Second
						o.Backend = dawdler{o.Backend.(*memory.Client)}
					}
				}))
			}
			w.until("the end", func(s *coordinator.State) bool { return s.RunState == coordinator.Finished })
			took[slow] = time.Since(begun)
			for _, m := range members {
				m.cancel()
				<-m.done
			}
		})
	}
	t.Logf("9 rounds in 3 epochs took %v, with one that dawdles %v", took[false], took[true])
	if most := took[false] + 3*(2*(leastWitnessWait+time.Second)+2*time.Second); took[true] > most {
		t.Errorf("with one that dawdles 9 rounds took %v, want at most %v", took[true], most)
	}
}

// TestWitnessWait says when a witness has waited long enough.
func TestWitnessWait(t *testing.T) {
	for name, test := range map[string]struct {
		held   int           // of six
		needed time.Duration // until two thirds were held
		waited time.Duration // since then
		want   bool
	}{
		"everything is held":              {6, time.Second, 0, true},
		"two thirds are not":              {3, time.Second, time.Hour, false},
		"short rounds have the least":     {4, time.Second, leastWitnessWait, false},
		"it is over":                      {5, time.Second, leastWitnessWait + 1, true},
		"long rounds have a quarter more": {5, time.Minute, 15 * time.Second, false},
		"that is over as well":            {4, time.Minute, 15*time.Second + 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			l, begun := sixSlots(test.held), time.Unix(1, 0)
			l.opened = begun
			everybody := func(coordinator.ClientID) bool { return true }
			most := begun.Add(test.needed)
			l.complete(everybody, most)
			if got := l.complete(everybody, most.Add(test.waited)); got != test.want {
				t.Errorf("complete: %v", got)
			}
		})
	}
}

// sixSlots is a round of six batches of which so many results are held.
func sixSlots(held int) *roundState {
	b := &tally.Tally{Began: true}
	for i := range 6 {
		s := tally.Slot{Owner: coordinator.ClientID(clienttest.Key(i).ID())}
		if i < held {
			s.Candidates = []*tally.Candidate{{State: tally.Held, InTime: true}}
		}
		b.Slots = append(b.Slots, s)
	}
	return &roundState{Tally: b}
}
