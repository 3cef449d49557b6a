package solana

import (
	"fmt"
	"time"

	"github.com/psyche-go/psyche/chain/layout"
	"github.com/psyche-go/psyche/chain/localnet"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/event"
)

// finish waits for the end of the run, checks that all clients have the model that the chain names,
// and returns their costs.
func (w *crew) finish() bill {
	w.t.Helper()
	limit := time.Minute + time.Duration(*steps)*20*time.Second
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for i, h := range w.hands {
		select {
		case <-h.done:
		case <-deadline.C:
			v, _ := h.now()
			w.t.Fatalf("client %d has not ended within %s: %v at step %d", i, limit, v.state.RunState, v.state.Progress.Step)
		}
		if h.err != nil {
			w.t.Errorf("client %d: %v", i, h.err)
		}
	}
	account, err := layout.ReadAccount(w.chain.ledger.At(localnet.Processed, 0).Account(w.run).Data)
	if err != nil {
		w.t.Fatal(err)
	}
	end := &account.State
	if end.RunState != coordinator.Finished || end.Model.Checkpoint.Kind != coordinator.CheckpointP2P {
		w.t.Fatalf("the run ended in %v at step %d, with a %v checkpoint", end.RunState, end.Progress.Step, end.Model.Checkpoint.Kind)
	}
	for i, h := range w.hands {
		w.checkEvents(i, h, fmt.Sprintf("%x", end.Model.Checkpoint.Digest))
	}
	return w.bill()
}

// checkEvents checks that a client ended with a model.
func (w *crew) checkEvents(i int, h *hand, digest string) {
	w.t.Helper()
	applied, lost, finished := 0, 0, 0
	for e, err := range event.Read(h.events) {
		if err != nil {
			w.t.Fatal(err)
		}
		switch body := e.Body.(type) {
		case event.Applied:
			applied++
		case event.Desynchronised:
			lost++
			w.t.Logf("client %d lost the model: %+v", i, body)
		case event.Finished:
			if finished++; body.Digest != digest {
				w.t.Errorf("client %d ends with model %q, the run with %q", i, body.Digest, digest)
			}
		}
	}
	if finished != 1 || applied == 0 {
		w.t.Errorf("client %d: %d rounds applied, %d ends", i, applied, finished)
	}
	w.t.Logf("client %d: %d of %d rounds applied, the model lost %d times", i, applied, *steps, lost)
}

// bill contains a crew's costs according to the chain.
type bill struct {
	transactions, ticks, outOfTurn int
	lamports, wasted               uint64 // wasted on ticks out of turn
}

// bill reads the clients' costs from the chain. A transaction that only ticks was in turn if its
// client reports so. If the client lost track of it, it counts as out of turn.
func (w *crew) bill() (b bill) {
	w.t.Helper()
	for _, h := range w.hands {
		own, costs := bill{}, h.Costs()
		var dearest uint64
		for _, r := range w.chain.ledger.At(localnet.Processed, 0).Newest(w.run, 1_000_000, transaction.Signature{}, transaction.Signature{}) {
			if r.Message.Keys[0] != h.key {
				continue
			}
			own.transactions++
			own.lamports += r.Fee
			if onlyTicks(r, w.chain.program) {
				own.ticks++
				dearest = max(dearest, r.Fee)
			}
		}
		own.outOfTurn = max(own.ticks-(costs.Ticks-costs.OutOfTurn), costs.OutOfTurn)
		w.t.Logf("%s: %d transactions, %d only ticks, %d out of turn; it counts %+v", h.key, own.transactions, own.ticks, own.outOfTurn, costs)
		b.transactions += own.transactions
		b.lamports += own.lamports
		b.ticks += own.ticks
		b.outOfTurn += own.outOfTurn
		b.wasted += uint64(own.outOfTurn) * dearest
	}
	w.t.Logf("%d transactions, %d lamports; %d only ticks, %d out of turn: %.1f %% of the fees",
		b.transactions, b.lamports, b.ticks, b.outOfTurn, b.share())
	return b
}

// share returns the percentage of the fees for ticks out of turn.
func (b bill) share() float64 { return 100 * float64(b.wasted) / float64(max(b.lamports, 1)) }

// onlyTicks reports whether a transaction does nothing for a run except ticks.
func onlyTicks(r *localnet.Record, program transaction.PublicKey) bool {
	ticks := 0
	for i := range r.Message.Instructions {
		in := r.Message.Instruction(i)
		if in.Program != program {
			continue
		}
		if in.Data[0] != transaction.RunTick {
			return false
		}
		ticks++
	}
	return ticks > 0
}

// within checks that the fees of ticks out of turn are below 5 % of all fees. In a short run a
// single such tick may be more.
func (b bill) within(w *crew) {
	w.t.Helper()
	if b.outOfTurn > 1 && b.share() >= 5 {
		w.t.Errorf("%.1f %% of the fees went into %d ticks out of turn", b.share(), b.outOfTurn)
	}
	if b.ticks == 0 || b.transactions < *steps*len(w.hands)/2 {
		w.t.Errorf("only %d transactions, %d of them ticks", b.transactions, b.ticks)
	}
}
