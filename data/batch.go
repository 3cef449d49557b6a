package data

import "github.com/psyche-go/psyche/assign"

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
