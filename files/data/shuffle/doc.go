// Package shuffle permutes sequence indices from a seed.
//
// New makes a Permutation of n indices; At maps an index to where its sequence is
// stored. Every client of a run computes the same order from the run's definition,
// without holding it in memory. Indices at or beyond n belong to further passes over
// the data, and every pass has an order of its own.
package shuffle
