// Package tokenizer turns text into token ids and back.
//
// Bytes returns the byte-level tokenizer: 256 tokens, the id of a token is the value of
// its byte. Load reads a tokenizer.json, or a tokenizer.model of SentencePiece, JSON writes one that Hugging Face libraries
// load with the same ids: a byte-level BPE without merges. A tokenizer.json that this
// package cannot follow exactly is an error that says why; it never falls back to ids
// that are only nearly right.
package tokenizer
