package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
)

// byteValues is the number of byte values.
const byteValues = 256

// alphabet maps each byte to its character in a byte-level vocabulary, as in GPT-2: printable
// Latin-1 characters represent themselves, and the other bytes in ascending order map to the
// characters from U+0100 on.
var alphabet = func() (characters [byteValues]rune) {
	next := rune(0x100)
	for b := range rune(byteValues) {
		if b >= '!' && b <= '~' || b >= '¡' && b <= '¬' || b >= '®' && b <= 'ÿ' {
			characters[b] = b
		} else {
			characters[b] = next
			next++
		}
	}
	return characters
}()

// Bytes returns the tokenizer whose IDs are the values of the bytes. It encodes any bytes,
// including invalid UTF-8.
var Bytes = sync.OnceValue(func() *Tokenizer {
	t, err := Parse(bytesJSON())
	if err != nil {
		panic("tokenizer: load the byte tokenizer: " + err.Error())
	}
	return t
})

// bytesJSON returns the file of Bytes: a byte-level BPE without merges.
func bytesJSON() []byte {
	var vocab strings.Builder
	for id, character := range alphabet {
		symbol, err := json.Marshal(string(character))
		if err != nil {
			panic("tokenizer: encode a character as JSON: " + err.Error())
		}
		if id > 0 {
			vocab.WriteString(",")
		}
		fmt.Fprintf(&vocab, "\n      %s: %d", symbol, id)
	}
	return []byte(`{
  "version": "1.0",
  "truncation": null,
  "padding": null,
  "added_tokens": [],
  "normalizer": null,
  "pre_tokenizer": {
    "type": "ByteLevel",
    "add_prefix_space": false,
    "trim_offsets": true,
    "use_regex": false
  },
  "post_processor": null,
  "decoder": {
    "type": "ByteLevel",
    "add_prefix_space": false,
    "trim_offsets": true,
    "use_regex": false
  },
  "model": {
    "type": "BPE",
    "dropout": null,
    "unk_token": null,
    "continuing_subword_prefix": null,
    "end_of_word_suffix": null,
    "fuse_unk": false,
    "byte_fallback": false,
    "ignore_merges": false,
    "vocab": {` + vocab.String() + `
    },
    "merges": []
  }
}
`)
}
