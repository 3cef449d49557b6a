// Package rotary caches the cosines and sines that rotate queries and keys according to their
// positions (Su et al., arXiv 2104.09864). The architecture defines how fast each pair rotates.
//
// The main types are [Rope], the settings in a config.json, and [Table], the cached rows.
package rotary
