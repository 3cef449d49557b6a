package client

import (
	"context"

	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/keep"
)

// heldOut describes how this client can measure models on held-out data.
func (n *Node) heldOut() core.HeldOut {
	how := core.HeldOut{Last: keep.LongestAhead(n.run.state)}
	if trainer, able := n.engine.trainer.(env.Measurer); able {
		_, how.Tokens = trainer.HeldOut()
	}
	return how
}

// measure measures the trainer's model on held-out data.
func (e *engine) measure(w core.Measure, take func(core.Evaluated)) {
	trainer := e.trainer.(env.Measurer)
	start(e, w, func(ctx context.Context) core.Evaluated {
		loss, err := trainer.Measure(ctx)
		return core.Evaluated{Measure: w, Loss: loss, Claim: claimedLoss(loss), Err: err}
	}, func(r core.Evaluated) {
		r.Sequences, _ = trainer.HeldOut()
		take(r)
	}, nil)
}
