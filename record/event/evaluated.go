package event

import (
	"math"
	"time"
)

// lossTask is the name of the task and of the score for a mean loss on held-out data.
const lossTask = "loss"

// EvaluatedLoss returns the event for the mean loss of a model over a number of sequences. It omits
// numbers that are not finite.
func EvaluatedLoss(step uint32, loss float64, sequences int, took time.Duration) Evaluated {
	e := Evaluated{Step: step, Task: lossTask, Scores: map[string]float64{}, Samples: sequences, Seconds: took.Seconds()}
	for name, value := range map[string]float64{lossTask: loss, "perplexity": math.Exp(loss)} {
		if !math.IsNaN(value) && !math.IsInf(value, 0) {
			e.Scores[name] = value
		}
	}
	return e
}
