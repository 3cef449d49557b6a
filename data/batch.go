package data

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"github.com/psyche-go/psyche/assign"
)

// Batch is the token sequences of one batch id, in the order of their indices.
type Batch struct {
	ID assign.BatchID

	// Sequences are token ids: inputs and, shifted by one, targets. Pre-training
	// sequences have max_seq_len+1 of them, ready-made samples what they were made with.
	Sequences [][]int32

	// Labels say, token for token, what a sequence is to be trained on: a label is the
	// target of the token before it, and IgnoreLabel is none. Nil: the tokens themselves.
	Labels [][]int32

	// Positions are the positions of the tokens, for samples that are packed from
	// several texts. Nil: 0, 1, 2 and so on.
	Positions [][]int32
}

// IgnoreLabel is the label of a token that is not trained on.
const IgnoreLabel = -100

// check refuses a batch that is not what was asked for: some providers ask others.
func (b Batch) check(id assign.BatchID) error {
	for _, part := range []struct {
		what string
		of   [][]int32
	}{{"sequences", b.Sequences}, {"lists of labels", b.Labels}, {"lists of positions", b.Positions}} {
		if n := uint64(len(part.of)); n != id.Len() && (part.of != nil || part.what == "sequences") {
			return fmt.Errorf("read batch %v: %d %s, want %d", id, n, part.what, id.Len())
		}
	}
	return nil
}

// Marks of Hash before labels and positions. No sequence is as long.
const (
	labelsFollow    = math.MaxUint32
	positionsFollow = math.MaxUint32 - 1
)

// Hash names what a batch holds, whatever it was read from: the SHA-256 of the length of each
// sequence and its tokens, all of 32 bits, little endian. Labels and positions, where there are
// any, follow in the same way, each after a mark that is no length.
func (b Batch) Hash() [sha256.Size]byte {
	h := sha256.New()
	var scratch []byte
	add := func(lists [][]int32) {
		for _, list := range lists {
			scratch = binary.LittleEndian.AppendUint32(scratch[:0], uint32(len(list)))
			for _, value := range list {
				scratch = binary.LittleEndian.AppendUint32(scratch, uint32(value))
			}
			_, _ = h.Write(scratch)
		}
	}
	add(b.Sequences)
	for _, part := range []struct {
		mark uint32
		of   [][]int32
	}{{labelsFollow, b.Labels}, {positionsFollow, b.Positions}} {
		if part.of != nil {
			_, _ = h.Write(binary.LittleEndian.AppendUint32(nil, part.mark))
			add(part.of)
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}
