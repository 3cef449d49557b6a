package core

import (
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Events that decide which work has precedence.
type (
	// InRound means that the run is in a round.
	InRound struct{}

	// Urgent means that the member is in a jury, and has not voted.
	Urgent struct {
		Part   *Part
		Own    bool          // the member has a batch in the round
		Lag    uint32        // the run's apply_lag
		Leeway time.Duration // how much later than usual the member's result of the round may come
		Next   func() Prediction
	}
)

func (InRound) event() {}
func (Urgent) event()  {}

// inRound stops a training of another round. A training that began ahead of the next round continues.
func (c *common) inRound() {
	step := c.state.Progress.Step
	_, ahead := c.Jobs.ahead(step + 1)
	c.Jobs.cancelTraining(func(of uint32) bool { return ahead || of == step && c.state.RunState == coordinator.RoundTrain })
}

// urgent lets a recomputation for a trial use the trainer before the member's next training, if the
// training's result is not late because of that. With a lag of two rounds, the next training may belong to
// the next round, and begin before that round starts.
func (c *common) urgent(e Urgent) {
	switch {
	case e.Own && !e.Part.Trained:
		c.ready.Preempt = e.Leeway - c.now.Sub(e.Part.Opened)
	case e.Lag > 1 && e.Next().OK:
		c.ready.Preempt = e.Leeway
	}
}
