package tokenizer

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"
)

// charsmap contains the rules of a SentencePiece normalizer (precompiled_charsmap): a trie of the
// replaced texts, and their replacements, each up to a zero byte. The trie is a double array in the
// format of the library Darts-clone: the unit of a node's child for a byte is at the node's
// position, exclusive-or its offset, exclusive-or the byte, and has the byte as its label. A node
// that ends a key has its value in the position of a child for the byte 0.
type charsmap struct {
	units []uint32
	texts []byte
}

// maxCharsmap is the maximum size of a charsmap in bytes.
const maxCharsmap = 16 << 20

// Parts of a unit.
const (
	unitIsValue = 1 << 31 // the other bits are a value
	unitHasLeaf = 1 << 8
	unitLabel   = unitIsValue | 0xff
)

// unitOffset returns the distance between a node and its children.
func unitOffset(unit uint32) uint32 { return unit >> 10 << (unit & (1 << 9) >> 6) }

// parseCharsmap parses a charsmap, whose trie follows its size in bytes (32 bits, little-endian).
// All searches in the result stay within bounds.
func parseCharsmap(raw []byte) (*charsmap, error) {
	if len(raw) > maxCharsmap {
		return nil, fmt.Errorf("%d bytes, the limit is %d", len(raw), maxCharsmap)
	}
	if len(raw) < 4 {
		return nil, fmt.Errorf("%d bytes, too few for the size of a trie", len(raw))
	}
	size := binary.LittleEndian.Uint32(raw)
	raw = raw[4:]
	if size == 0 || size%4 != 0 || uint64(size) > uint64(len(raw)) {
		return nil, fmt.Errorf("trie size %d, want a multiple of 4 from 4 to %d", size, len(raw))
	}
	c := &charsmap{units: make([]uint32, size/4), texts: raw[size:]}
	if !utf8.Valid(c.texts) {
		return nil, errors.New("texts are not UTF-8")
	}
	for i := range c.units {
		c.units[i] = binary.LittleEndian.Uint32(raw[4*i:])
	}
	for i, unit := range c.units {
		if i > 0 && unit&unitIsValue != 0 {
			continue
		}
		children := uint32(i) ^ unitOffset(unit)
		if int64(children|0xff) >= int64(len(c.units)) {
			return nil, fmt.Errorf("trie unit %d points outside the trie", i)
		}
		if unit&unitHasLeaf == 0 {
			continue
		}
		value := int(c.units[children] &^ unitIsValue)
		if value > len(c.texts) || value < len(c.texts) && !utf8.RuneStart(c.texts[value]) {
			return nil, fmt.Errorf("trie unit %d refers to byte %d of the texts, want the start of a text in %d bytes", i, value, len(c.texts))
		}
	}
	return c, nil
}

// maxRuleBytes is the maximum length of text that is looked up in a charsmap. It bounds the time of
// a lookup, because the trie may contain cycles, or be as deep as it is long.
const maxRuleBytes = 256

// find calls yield for each replaced prefix of a text, the shortest first, with the offset of its
// replacement and the prefix's length, until yield returns false. It reports whether there may be
// further prefixes, longer than maxRuleBytes.
func (c *charsmap) find(text []byte, yield func(at uint32, length int) bool) (deeper bool) {
	node := unitOffset(c.units[0])
	for i, b := range text {
		if b == 0 {
			return false
		}
		node ^= uint32(b)
		unit := c.units[node]
		if unit&unitLabel != uint32(b) {
			return false
		}
		if i == maxRuleBytes {
			return true
		}
		node ^= unitOffset(unit)
		if unit&unitHasLeaf != 0 && !yield(c.units[node]&^unitIsValue, i+1) {
			return false
		}
	}
	return false
}

// text returns the text at an offset.
func (c *charsmap) text(at uint32) []byte {
	text := c.texts[at:]
	if end := bytes.IndexByte(text, 0); end >= 0 {
		text = text[:end]
	}
	return text
}

// first returns the replacement of the shortest replaced prefix of a text.
func (c *charsmap) first(text []byte) (with []byte, found bool) {
	c.find(text, func(at uint32, _ int) bool {
		with, found = c.text(at), true
		return false
	})
	return with, found
}
