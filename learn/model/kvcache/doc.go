// Package kvcache stores the tensors that attention needs of earlier tokens, so that a model computes
// only each further token.
//
// The main type is [Cache]. A model appends to it layer by layer, and advances it after the last
// layer. The caller that generates text creates the cache and frees it.
package kvcache
