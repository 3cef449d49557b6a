// Package tokenizer turns text into token ids and back.
//
// The main type is Tokenizer. Load reads a tokenizer.json, or a tokenizer.model of SentencePiece:
//
//	coder, err := tokenizer.Load("model/tokenizer.json")
//	ids, err := coder.Encode([]byte("text"))
//	text, err := coder.Decode(ids)
//
// Bytes returns the byte-level tokenizer: 256 tokens, each with the value of its byte as its id. Its
// JSON is a file that Hugging Face libraries load with the same ids: a byte-level BPE without merges.
//
// If this package cannot follow a tokenizer.json exactly, it returns an error with the reason. It
// never falls back to approximate ids.
package tokenizer
