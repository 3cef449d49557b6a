// Package data delivers the token sequences of a batch.
//
// New opens the first of a run's data locations that works and returns its Provider.
// Sequences are named by their index over the whole run, so that every client reads the
// same tokens for the same batch; packages below this one read the different kinds of
// locations, and files/data/prepare makes the files that files/data/local reads.
package data
