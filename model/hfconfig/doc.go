// Package hfconfig checks the numbers of a Hugging Face config.json. A Checker holds the
// first complaint, so that an architecture's reader is a list of its fields.
package hfconfig
