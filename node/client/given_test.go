package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/record/event"
)

// asksOthers is a network that fetches like package blob. If a holder does not answer for a second,
// it asks the other holders, and then all of them again if the others do not answer either.
type asksOthers struct {
	env.Network
	keeps func(from identity.ID) bool // whether a member withholds its results from this member now
}

func (n asksOthers) Fetch(ctx context.Context, hash [32]byte, size uint64, holders []identity.ID) ([]byte, error) {
	for pause := time.Second; ; pause = min(2*pause, 8*time.Second) {
		if slices.ContainsFunc(holders, n.keeps) {
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		willing := slices.DeleteFunc(slices.Clone(holders), n.keeps)
		asked, done := context.WithTimeout(ctx, pause)
		data, err := n.Network.Fetch(asked, hash, size, willing)
		done()
		if err == nil || ctx.Err() != nil || len(willing) == len(holders) && !errors.Is(err, context.DeadlineExceeded) {
			return data, err
		}
	}
}

// TestGivenToSomeOnly checks a run in which three of ten members send their results only to some
// members. The recipients are the same in all rounds, or change in each round. The other members get
// the results from the recipients. No honest member is late or without a result, and rounds of 2 s
// take at most three quarters longer.
func TestGivenToSomeOnly(t *testing.T) {
	run := func(t *testing.T, some int, others bool) (took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			const rounds = 20
			config := clienttest.Config(10)
			config.TotalSteps, config.RoundsPerEpoch, config.MaxRoundTrainTime = rounds, rounds/2, 60_000
			config.GlobalBatchSizeStart, config.GlobalBatchSizeEnd = 20, 20
			w := newWorld(t, config)
			number := make(map[identity.ID]int)
			for i := range 10 {
				number[clienttest.Key(i).ID()] = i
			}
			w.hub.Stall = func(to, from identity.ID) bool {
				place := number[to] - 3
				if others {
					place += int(w.host.State().Progress.Step)
				}
				return number[from] < 3 && number[to] >= 3 && place%7 >= some
			}
			begun := time.Now()
			var members []*member
			for i := range 10 {
				members = append(members, w.launch(i, func(o *options) {
					o.trainer.Duration = 2 * time.Second
					me := clienttest.Key(i).ID()
					o.Network = asksOthers{o.Network, func(from identity.ID) bool { return w.hub.Stall(me, from) }}
				}))
			}
			w.until("the end", func(s *coordinator.State) bool {
				for _, c := range s.Epoch.Clients {
					if c.Lateness != coordinator.OnTime && number[identity.ID(c.ID)] >= 3 {
						t.Fatalf("in step %d member %d is %v", s.Progress.Step, number[identity.ID(c.ID)], c.Lateness)
					}
				}
				return s.RunState == coordinator.Finished
			})
			took = time.Since(begun)
			finishEqual(w, members...)
			for i, m := range members[3:] {
				if applied := len(all[event.Applied](m)); applied != rounds || m.trainer.Momentum() != rounds {
					t.Errorf("member %d applied %d rounds, its results count in %d", i+3, applied, m.trainer.Momentum())
				}
			}
		})
		return took
	}
	usual := run(t, 7, false)
	for _, some := range []int{1, 4} {
		for _, others := range []bool{false, true} {
			t.Run(fmt.Sprintf("%d, others each round %v", some, others), func(t *testing.T) {
				if took := run(t, some, others); took > usual*7/4 {
					t.Errorf("took %v, usually %v", took, usual)
				} else {
					t.Logf("took %v, usually %v", took, usual)
				}
			})
		}
	}
}
