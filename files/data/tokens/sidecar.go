package tokens

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// Stated contains the properties of a token file that another file states.
type Stated struct {
	By        string // name of that other file
	TokenSize int    // bytes of a token
	Bytes     int64  // length of the file; negative: not stated
}

// Check returns an error if the stated properties contradict a file's size, or the token size with
// which the file is to be read.
func (s Stated) Check(name string, size int64, tokenSize int) error {
	if s.TokenSize != tokenSize {
		return fmt.Errorf("token file %s: %w: %s sets %d bytes per token, the token size in use is %d; set the token size with %s (runs have 2 or 4)",
			name, ErrWrongSize, s.By, s.TokenSize, tokenSize, remedy)
	}
	if s.Bytes >= 0 && s.Bytes != size {
		return fmt.Errorf("token file %s has %d bytes, but %s states %d; get the file again if it is truncated or replaced", name, size, s.By, s.Bytes)
	}
	return nil
}

// Sidecars returns the names of the files in which datatrove and nanotron (.metadata) and Megatron
// (.idx) describe a token file.
func Sidecars(name string) []string {
	return []string{name + metadataEnding, strings.TrimSuffix(name, path.Ext(name)) + indexEnding}
}

const (
	metadataEnding = ".metadata"
	indexEnding    = ".idx"
	maxMetadata    = 64 << 10
)

// errSidecar contains the remedy for a damaged description.
var errSidecar = errors.New("get it again, or move it away if it does not belong to the tokens")

// ReadSidecar reads a file that Sidecars names. found is false if the file has another purpose.
func ReadSidecar(ctx context.Context, f File) (s Stated, found bool, err error) {
	if strings.HasSuffix(f.Name(), metadataEnding) {
		s, found, err = readMetadata(ctx, f)
	} else {
		s, found, err = readIndex(ctx, f)
	}
	if err != nil {
		return Stated{}, false, fmt.Errorf("read %s: %w; %w", f.Name(), err, errSidecar)
	}
	s.By = f.Name()
	return s, found, nil
}

// readMetadata parses the lines "TOKENIZER|SIZE" and the number of tokens.
func readMetadata(ctx context.Context, f File) (Stated, bool, error) {
	if f.Size() > maxMetadata {
		return Stated{}, false, nil
	}
	text := make([]byte, f.Size())
	if err := f.ReadAt(ctx, text, 0); err != nil {
		return Stated{}, false, err
	}
	lines := strings.Split(strings.ReplaceAll(string(text), "\r", ""), "\n")
	at := strings.LastIndexByte(lines[0], '|')
	size, err := strconv.Atoi(strings.TrimSpace(lines[0][at+1:]))
	if at < 0 || err != nil {
		return Stated{}, false, nil
	}
	if size != 2 && size != 4 && size != 8 {
		return Stated{}, false, fmt.Errorf("unsupported token size of %d bytes, want 2, 4 or 8", size)
	}
	s := Stated{TokenSize: size, Bytes: -1}
	if len(lines) > 1 {
		if count, err := strconv.ParseInt(lines[1], 10, 56); err == nil && count >= 0 {
			s.Bytes = count * int64(size)
		}
	}
	return s, true, nil
}

// indexMagic is the start of Megatron's .idx.
const (
	indexMagic  = "MMIDIDX\x00\x00"
	indexHeader = len(indexMagic) + 8 + 1 + 8 + 8
)

// indexTypes contains the number types in an .idx by their codes, and the bytes of a token if they
// are supported. IDs are not negative, so signs do not matter.
var indexTypes = map[byte]struct {
	name string
	size int
}{1: {"uint8", 0}, 2: {"int8", 0}, 3: {"int16", 2}, 4: {"int32", 4}, 5: {"int64", 8}, 6: {"float64", 0}, 7: {"float32", 0}, 8: {"uint16", 2}}

// readIndex reads the header of an .idx (mark, version, type, numbers of sequences and of
// documents) and computes the end of the last sequence from its arrays (32-bit lengths, 64-bit
// offsets).
func readIndex(ctx context.Context, f File) (Stated, bool, error) {
	if f.Size() < int64(indexHeader) {
		return Stated{}, false, nil
	}
	head := make([]byte, indexHeader)
	if err := f.ReadAt(ctx, head, 0); err != nil {
		return Stated{}, false, err
	}
	if !bytes.HasPrefix(head, []byte(indexMagic)) {
		return Stated{}, false, nil
	}
	rest := head[len(indexMagic):]
	if version := binary.LittleEndian.Uint64(rest); version != 1 {
		return Stated{}, false, fmt.Errorf("version %d, only 1 is known", version)
	}
	kind, known := indexTypes[rest[8]]
	if !known {
		return Stated{}, false, fmt.Errorf("unknown token type %d", rest[8])
	}
	if kind.size == 0 {
		return Stated{}, false, fmt.Errorf("unsupported token type %s, want int16, uint16, int32 or int64", kind.name)
	}
	s := Stated{TokenSize: kind.size, Bytes: 0}
	sequences := binary.LittleEndian.Uint64(rest[9:])
	if limit := uint64(f.Size()-int64(indexHeader)) / 12; sequences > limit {
		return Stated{}, false, fmt.Errorf("header has %d sequences, the file has room for %d; get the file again if it is truncated", sequences, limit)
	}
	if sequences == 0 {
		return s, true, nil
	}
	var length [4]byte
	var place [8]byte
	lengths := int64(indexHeader)
	places := lengths + 4*int64(sequences)
	err := errors.Join(f.ReadAt(ctx, length[:], places-4), f.ReadAt(ctx, place[:], places+8*int64(sequences-1)))
	s.Bytes = int64(binary.LittleEndian.Uint64(place[:])) + int64(binary.LittleEndian.Uint32(length[:]))*int64(kind.size)
	if err == nil && s.Bytes < 0 {
		err = errors.New("the last sequence has an invalid offset")
	}
	return s, true, err
}
