package tokenizer

import (
	"encoding/json"
	"fmt"
	"strings"
)

// vocabSize is the number of byte values.
const vocabSize = 256

// Tokenizer maps every byte to one token. It is immutable.
type Tokenizer struct {
	ids   [vocabSize]uint8 // of each byte
	bytes [vocabSize]byte  // of each id
}

// Bytes returns the tokenizer whose ids are the values of the bytes.
func Bytes() *Tokenizer {
	var t Tokenizer
	for i := range vocabSize {
		t.ids[i], t.bytes[i] = uint8(i), byte(i)
	}
	return &t
}

// VocabSize returns the number of tokens; every id is less.
func (t *Tokenizer) VocabSize() int { return vocabSize }

// Encode returns the ids of a text, which may be any bytes.
func (t *Tokenizer) Encode(text []byte) []int32 {
	return t.AppendEncode(make([]int32, 0, len(text)), text)
}

// AppendEncode appends the ids of a text.
func (t *Tokenizer) AppendEncode(ids []int32, text []byte) []int32 {
	for _, b := range text {
		ids = append(ids, int32(t.ids[b]))
	}
	return ids
}

// Decode returns the text of ids. It is any bytes: ids that a model made need not be
// valid UTF-8. An id outside the vocabulary is an error.
func (t *Tokenizer) Decode(ids []int32) ([]byte, error) {
	text := make([]byte, len(ids))
	for i, id := range ids {
		if id < 0 || id >= vocabSize {
			return nil, fmt.Errorf("decode token %d: id %d, the vocabulary has %d", i, id, vocabSize)
		}
		text[i] = t.bytes[id]
	}
	return text, nil
}

// alphabet maps each byte to the character that stands for it in a byte-level
// vocabulary, as GPT-2 introduced it: printable characters of Latin-1 stand for
// themselves, the other bytes in ascending order for the characters from U+0100 on.
var alphabet = func() (characters [vocabSize]rune) {
	next := rune(0x100)
	for b := range rune(vocabSize) {
		if b >= '!' && b <= '~' || b >= '¡' && b <= '¬' || b >= '®' && b <= 'ÿ' {
			characters[b] = b
		} else {
			characters[b] = next
			next++
		}
	}
	return characters
}()

// JSON returns the tokenizer as a tokenizer.json, the vocabulary in the order of ids.
func (t *Tokenizer) JSON() []byte {
	var vocab strings.Builder
	for id, b := range t.bytes {
		symbol, err := json.Marshal(string(alphabet[b]))
		if err != nil {
			panic("tokenizer: a character has no JSON: " + err.Error())
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
