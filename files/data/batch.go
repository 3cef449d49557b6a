package data

import (
	"fmt"

	"github.com/psyche-go/psyche/core/assign"
)

// Batch contains the token sequences of a batch ID, in the order of their indices.
type Batch struct {
	ID assign.BatchID

	// Sequences are token IDs: inputs and, shifted by one, targets. Pre-training sequences have
	// max_seq_len+1 tokens; preprocessed samples have the length stored with them.
	Sequences [][]int32

	// Labels are the training targets, one for each token of a sequence: a label is the target of
	// the token before it, and IgnoreLabel means no target. Nil: the tokens themselves.
	Labels [][]int32

	// Positions are the positions of the tokens, for samples that are packed from several texts.
	// Nil: 0, 1, 2 and so on.
	Positions [][]int32

	// Receipt is the data server's receipt for the batch. Nil: the batch comes from another source.
	Receipt *Receipt
}

// IgnoreLabel is the label of a token without a training target.
const IgnoreLabel = -100

// check returns an error if the batch does not match the request. The batch may come from another
// machine.
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
