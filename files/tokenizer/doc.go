// Package tokenizer converts text to token IDs and back.
//
// The main type is Tokenizer. Load reads a tokenizer.json, or a tokenizer.model of SentencePiece:
//
//	coder, err := tokenizer.Load("model/tokenizer.json")
//	ids, err := coder.Encode([]byte("text"))
//	text, err := coder.Decode(ids)
//
// Bytes returns the byte-level tokenizer: 256 tokens, each with the value of its byte as its ID.
// Its JSON is a file that Hugging Face libraries load with the same IDs: a byte-level BPE without
// merges.
//
// If this package cannot implement a tokenizer.json exactly, it returns an error with the reason.
// It never falls back to approximate IDs.
package tokenizer
