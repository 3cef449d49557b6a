// Package shuffle permutes sequence indices by a seed.
//
// New makes a Permutation of n indices. At maps an index to the stored position of its sequence:
//
//	number := shuffle.New(seed, n).At(index) // less than n
//
// Every client of a run computes the same order from the run's definition, without storing it in
// memory. Indices of n and above belong to further passes over the data. Every pass has a different
// order.
package shuffle
