// Package data reads the token sequences of a run's batches.
//
// New opens the first of a run's data locations that works, and returns its Provider.
//
//	provider, err := data.New(ctx, locations, options)
//	batch, err := provider.Batch(ctx, id)
//
// A sequence is identified by an index over the whole run, so every client reads the same tokens
// for the same batch. The packages below this one read the different kinds of locations. Package
// files/data/prepare makes the files that package files/data/local reads.
package data
