package data

import (
	"fmt"

	"github.com/psyche-go/psyche/core/assign"
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

	// Receipt is what a data server signed about the batch. Nil: it came from elsewhere.
	Receipt *Receipt
}

// IgnoreLabel is the label of a token that is not trained on.
const IgnoreLabel = -100

// check refuses a batch that is not what was asked for: some providers ask others.
func (b Batch) check(id assign.BatchID) error {
	for _, part := range []struct {
		name string
		of   [][]int32
	}{{"sequences", b.Sequences}, {"lists of labels", b.Labels}, {"lists of positions", b.Positions}} {
		if n := uint64(len(part.of)); n != id.Len() && (part.of != nil || part.name == "sequences") {
			return fmt.Errorf("read batch %v: %d %s, want %d", id, n, part.name, id.Len())
		}
	}
	return nil
}
