// Package kvcache holds what attention needs of the tokens that a model has seen, so that
// each further token is computed by itself.
//
// The main type is [Cache]. A model appends to it layer by layer and advances it when all
// layers are done; who generates text makes it, and frees it.
package kvcache
