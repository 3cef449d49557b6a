package data

import "github.com/psyche-go/psyche/assign"

// Batch is the token sequences of one batch id, in the order of their indices.
type Batch struct {
	ID        assign.BatchID
	Sequences [][]int32 // each max_seq_len+1 token ids: inputs and, shifted by one, targets
}
