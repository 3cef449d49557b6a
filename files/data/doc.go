// Package data delivers the token sequences of a batch.
//
// New opens the first of a run's data locations that works, and returns its Provider.
//
//	provider, err := data.New(ctx, locations, options)
//	batch, err := provider.Batch(ctx, id)
//
// An index over the whole run names a sequence, so every client reads the same tokens for the same
// batch. The packages below this one read the different kinds of locations. Package
// files/data/prepare makes the files that package files/data/local reads.
package data
