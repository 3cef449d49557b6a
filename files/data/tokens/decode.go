package tokens

import (
	"encoding/binary"
	"fmt"
	"math"
)

// decode converts little-endian bytes to token IDs and returns the position of the first one out of
// range, or -1.
func decode(tokens []int32, raw []byte, o Options) int {
	limit := uint32(math.MaxInt32)
	if o.VocabSize > 0 {
		limit = uint32(min(o.VocabSize-1, math.MaxInt32))
	}
	switch o.TokenSize {
	case 2:
		for i := range tokens {
			id := uint32(binary.LittleEndian.Uint16(raw[2*i:]))
			if id > limit {
				return i
			}
			tokens[i] = int32(id)
		}
		return -1
	case 8:
		for i := range tokens {
			id := binary.LittleEndian.Uint64(raw[8*i:])
			if id > uint64(limit) {
				return i
			}
			tokens[i] = int32(id)
		}
		return -1
	}
	for i := range tokens {
		id := binary.LittleEndian.Uint32(raw[4*i:])
		if id > limit {
			return i
		}
		tokens[i] = int32(id)
	}
	return -1
}

func rangeError(name string, position uint64, raw []byte, o Options) error {
	id := uint64(binary.LittleEndian.Uint16(raw))
	switch o.TokenSize {
	case 4:
		id = uint64(binary.LittleEndian.Uint32(raw))
	case 8:
		id = binary.LittleEndian.Uint64(raw)
	}
	if o.VocabSize == 0 {
		return fmt.Errorf("token file %s: %w: token %d is %d, more than an id can be; is the token size wrong?",
			name, ErrTokenRange, position, id)
	}
	return fmt.Errorf("token file %s: %w: token %d is %d, the vocabulary has %d; check the tokenizer and the token size",
		name, ErrTokenRange, position, id, o.VocabSize)
}
