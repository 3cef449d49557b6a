package solana

import (
	"testing"
	"time"

	"github.com/psyche-go/psyche/chain/localnet"
	"github.com/psyche-go/psyche/core/coordinator"
)

// TestTrained trains without faults.
func TestTrained(t *testing.T) {
	t.Parallel()
	w := newCrew(t, newChain(t, 3, *slotTime, nil), nil)
	w.finish().within(w)
}

// TestTrainedWithDeadEndpoint stops one of three endpoints while a round is trained. Later a second
// endpoint asks clients to wait, and then the third endpoint stops.
func TestTrainedWithDeadEndpoint(t *testing.T) {
	t.Parallel()
	c := newChain(t, 3, *slotTime, nil)
	w := newCrew(t, c, nil)
	w.inPhase(coordinator.RoundTrain, 1)
	w.fault(0, localnet.Faults{Dead: true})
	w.inPhase(coordinator.RoundTrain, 2)
	w.fault(0, localnet.Faults{})
	w.fault(1, localnet.Faults{Throttled: true, Retry: time.Second})
	w.inPhase(coordinator.RoundTrain, 4)
	w.fault(1, localnet.Faults{})
	w.fault(2, localnet.Faults{Dead: true})
	w.finish().within(w)
}

// TestTrainedWithOneOfThree stops two of three endpoints for a round, in which clients must prove
// the third endpoint's states.
func TestTrainedWithOneOfThree(t *testing.T) {
	t.Parallel()
	c := newChain(t, 3, *slotTime, nil)
	w := newCrew(t, c, nil)
	after := w.inPhase(coordinator.RoundTrain, 1)
	w.fault(0, localnet.Faults{Dead: true})
	w.fault(2, localnet.Faults{Dead: true})
	w.inPhase(coordinator.RoundTrain, after+1)
	w.faultAll(localnet.Faults{})
	w.finish()
}

// TestTrainedThroughRollback rolls back three slots while the run waits for witnesses.
func TestTrainedThroughRollback(t *testing.T) {
	for name, again := range map[string]bool{"and they land again": true, "for good": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChain(t, 3, *slotTime, nil)
			w := newCrew(t, c, nil)
			for after := uint32(1); after <= 3; after += 2 {
				w.inPhase(coordinator.RoundWitness, after)
				if err := c.server.Rollback(3, again); err != nil {
					t.Fatal(err)
				}
			}
			w.finish().within(w)
		})
	}
}

// TestTrainedWithLosses loses every fifth transaction that is sent to any endpoint.
func TestTrainedWithLosses(t *testing.T) {
	for name, nodes := range map[string]int{"one endpoint": 1, "three endpoints": 3} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newChain(t, nodes, *slotTime, nil)
			w := newCrew(t, c, nil)
			w.faultAll(localnet.Faults{Lost: 0.2})
			w.finish().within(w)
		})
	}
}

// TestTrainedAllNoticeAtOnce cuts all clients off from the chain while a tick becomes due. When they
// are back, they notice it at the same moment.
func TestTrainedAllNoticeAtOnce(t *testing.T) {
	t.Parallel()
	c := newChain(t, 3, *slotTime, nil)
	w := newCrew(t, c, nil)
	for after := uint32(1); after < uint32(*steps)-1; after += 2 {
		w.inPhase(coordinator.RoundWitness, after)
		w.faultAll(localnet.Faults{Dead: true})
		time.Sleep(6 * time.Second) // on the chain's clock: longer than RoundWitness
		w.faultAll(localnet.Faults{})
	}
	w.finish().within(w)
}

// TestTrainedWithoutTurns measures the cost if clients ignore turns.
func TestTrainedWithoutTurns(t *testing.T) {
	t.Parallel()
	c := newChain(t, 3, *slotTime, nil)
	c.pace.Turn, c.pace.Late = 1, 1
	w := newCrew(t, c, nil)
	w.finish()
}
