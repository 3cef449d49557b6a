// Package dummy implements a model and a trainer with almost no computation, for tests of a run's network:
// a run whose checkpoint is Dummy needs no libtorch, no model and no data.
//
// Model returns the first model of every such run. New makes a Trainer, for which Options.Delay is the
// duration of a training step. Its results are a few bytes, computed from the batch and the weights, and
// all results that count move the weights. So a member that applied other results, or applied them in
// another order, ends with another model, and its digest shows this as with a real model.
package dummy
