// Package dummy is a model and a trainer that compute next to nothing, for tests of a run's
// network: a run whose checkpoint is Dummy needs no libtorch, no model and no data.
//
// Model is what every such run begins with. A Trainer of New takes Options.Delay for a
// training, makes results of a few bytes out of the batch and the weights, and moves the
// weights by all results that count, so that members who applied others, or in another order,
// end with another model: the digests show it as they would with a real one.
package dummy
