// Package hfconfig reads a Hugging Face config.json and checks its numbers. A Checker holds the
// first complaint, so that an architecture's reader is a list of its fields.
package hfconfig
