package tokens

import (
	"encoding/binary"
	"errors"
	"fmt"
	"path"
)

// twoByteTokens is the largest vocabulary whose IDs fit into two bytes.
const twoByteTokens = 1 << 16

// Errors about the size of a token.
var (
	ErrSizeUnknown = errors.New("unknown token size")
	ErrWrongSize   = errors.New("wrong token size")
)

// remedy names the settings for the token size. Errors about a wrong or unknown size contain it.
const remedy = "--token-size, or token_size_in_bytes of a run's data location"

// AssumeSize returns the token size of a file without a description: two bytes, which is usual, if
// the vocabulary is known and fits. Otherwise it returns an error.
func AssumeSize(name string, size int64, vocabulary int) (int, error) {
	possible := ""
	for _, width := range []int64{2, 4, 8} {
		if size%width == 0 {
			possible += fmt.Sprintf("%d, ", width)
		}
	}
	why := "the vocabulary is unknown"
	switch {
	case possible == "":
		return 0, fmt.Errorf("token file %s: %w: %d bytes, tokens have 2, 4 or 8; get the file again if it is truncated", name, ErrOddLength, size)
	case vocabulary > 0 && vocabulary <= twoByteTokens:
		return 2, nil
	case vocabulary > 0:
		why = fmt.Sprintf("the vocabulary has %d entries, too many for 2 bytes", vocabulary)
	}
	return 0, fmt.Errorf("token file %s: %w; the file length allows %s bytes, and %s; set the size with %s, or copy the data.json or .metadata of the file into its folder",
		name, ErrSizeUnknown, possible[:len(possible)-2], why, remedy)
}

// CheckPresumed returns an error if tokens that were presumed to be two bytes wide cannot be,
// because the IDs of the vocabulary do not fit. Two bytes is the default for a run's folder, so the
// run's location may not have stated the size.
func CheckPresumed(name string, size int64, vocabulary int) error {
	if vocabulary <= twoByteTokens && size%2 == 0 {
		return nil
	}
	if vocabulary <= twoByteTokens {
		_, err := AssumeSize(name, size, vocabulary)
		return err
	}
	return fmt.Errorf("token file %s: %w: no file describes it, and token_size_in_bytes = \"TwoBytes\" (the default) is too small for the %d ids of the model's vocabulary; set token_size_in_bytes = \"FourBytes\", or, for tokens of a smaller vocabulary, add a file %s that contains \"NAME|2\"",
		name, ErrSizeUnknown, vocabulary, path.Base(name)+metadataEnding)
}

// Limits with which looksWider detects larger tokens.
const (
	leastPairs = 64
	smallHalf  = 16 // upper halves are smaller for vocabularies of up to 2^20 entries
	leastLower = 32 // by chance, only one file in 2^32 has this number of nonzero tokens in every second position and none elsewhere
)

// looksWider reports whether the start of a file, read as tokens of size bytes, looks like tokens of
// twice the size. Either every second token is small and most of the remaining tokens are not, or
// every second token is 0 and some of the remaining tokens are not.
func looksWider(start []byte, size int) bool {
	if size > 4 || len(start) < 2*size*leastPairs {
		return false
	}
	read := func(at int) uint32 {
		if size == 2 {
			return uint32(binary.LittleEndian.Uint16(start[at:]))
		}
		return binary.LittleEndian.Uint32(start[at:])
	}
	pairs, large, upper, lower := 0, 0, 0, 0
	for at := 0; at+2*size <= len(start); at += 2 * size {
		high := read(at + size)
		if high >= smallHalf {
			return false
		}
		pairs++
		if high != 0 {
			upper++
		}
		if read(at) != 0 {
			lower++
		}
		if read(at) >= smallHalf {
			large++
		}
	}
	return 2*large > pairs || upper == 0 && lower >= leastLower || size == 2 && looksWider(start, 4)
}

func checkWidth(name string, start []byte, size int) error {
	if !looksWider(start, size) {
		return nil
	}
	wider := 2 * size
	if size == 2 && looksWider(start, 4) {
		wider = 8
	}
	return fmt.Errorf("%w: with %d bytes per token every second token is 0 or nearly so, so the tokens probably have %d bytes; set that size with %s; if %d is correct, use --token-size %d, or for a run add a file %s that contains \"NAME|%d\"",
		ErrWrongSize, size, wider, remedy, size, size, path.Base(name)+metadataEnding, size)
}
