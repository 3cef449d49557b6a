package client

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/record/event"
)

// lateNetwork is a network whose client answers questions of one protocol later, and in another way.
type lateNetwork struct {
	env.Network
	protocol string
	late     time.Duration
	change   func(answer []byte) []byte
}

func (n lateNetwork) Handle(protocol string, limit int, handle func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)) {
	n.Network.Handle(protocol, limit, func(ctx context.Context, from identity.ID, request []byte) ([]byte, error) {
		answer, err := handle(ctx, from, request)
		if err == nil && protocol == n.protocol {
			select {
			case <-time.After(n.late):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			answer = n.change(append([]byte(nil), answer...))
		}
		return answer, err
	})
}

// otherSizes changes the size of the first result of an answer, which no replica hash covers.
func otherSizes(answer []byte) []byte {
	answer[4+4+2+80]++
	return answer
}

// TestReturnAmongLiars brings a client back into an epoch while one of three members that it asks says what
// counted with wrong sizes, later than all others or earlier.
func TestReturnAmongLiars(t *testing.T) {
	for name, test := range map[string]struct {
		late, duration time.Duration
	}{
		"the last answer":             {late: time.Second, duration: 2 * time.Second},
		"the first answer":            {duration: 2 * time.Second},
		"an answer after many rounds": {late: 4900 * time.Millisecond, duration: 300 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				config := clienttest.Config(4)
				config.RoundsPerEpoch, config.TotalSteps = 40, 80
				w := newWorld(t, config, []byte(everyThird)...)
				change := func(i int) func(o *options) {
					return func(o *options) {
						large(o)
						o.trainer.Duration = test.duration
						if i == 1 {
							o.Network = lateNetwork{o.Network, exchange.ResultsProtocol, test.late, otherSizes}
						}
					}
				}
				var members []*member
				for i := range 4 {
					members = append(members, w.launch(i, change(i)))
				}
				w.reach(10, coordinator.RoundTrain)
				members[3].crash()
				died := time.Now()
				members[3] = w.launch(3, change(3))
				finishEqual(w, members...)
				checkNobodyAccused(t, w, members)
				back := members[3]
				if rejoined := all[event.Rejoined](back); len(rejoined) != 1 || rejoined[0].Epoch != 0 {
					t.Fatalf("rejoined: %+v", rejoined)
				} else {
					t.Logf("back in step %d, away since %v", rejoined[0].Step, died)
				}
				if ready := all[event.Ready](back); ready[0].Source != "peers" {
					t.Errorf("ready: %+v", ready)
				}
			})
		})
	}
}

// TestHoldersAreAnybody wants three attempts to get a commit point from members to ask an honest one, wherever
// among thirty members nine hostile ones say that they hold it too.
func TestHoldersAreAnybody(t *testing.T) {
	s := &coordinator.State{}
	for i := range 31 {
		s.Epoch.Clients = append(s.Epoch.Clients, coordinator.Client{ID: coordinator.ClientID(clienttest.Key(i).ID()), HoldsEarlier: 7})
	}
	for first := range 30 {
		hostile := make(map[identity.ID]bool)
		for i := range 9 {
			hostile[clienttest.Key(1+(first+i)%30).ID()] = true
		}
		v := newView(clienttest.Key(0))
		v.state = s
		found := false
		for range 3 {
			for _, id := range v.holders(7) {
				found = found || !hostile[id]
			}
		}
		if !found {
			t.Errorf("with hostile members from the %dth on only they are asked", first)
		}
	}
}
