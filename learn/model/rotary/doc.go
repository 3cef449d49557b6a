// Package rotary keeps the tables of cosines and sines by which a model turns queries and keys
// according to their positions (Su et al., arXiv 2104.09864). How fast each pair turns is the
// architecture's own.
package rotary
