package data

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/data/tokens"
)

// dummyLen is the number of sequences that a dummy says it has.
const dummyLen = 1 << 40

// dummy delivers zeros.
type dummy struct{ seqLen int }

func newDummy(seqLen int) (Provider, error) {
	if seqLen < 1 || seqLen > tokens.MaxSeqLen {
		return nil, fmt.Errorf("sequence length %d, want 1 to %d", seqLen, tokens.MaxSeqLen)
	}
	return dummy{seqLen: seqLen}, nil
}

func (d dummy) Sequences(ctx context.Context, batch assign.BatchID) ([][]int32, error) {
	if err := tokens.CheckBatch(batch, d.seqLen); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	sequences := make([][]int32, batch.Len())
	for i := range sequences {
		sequences[i] = make([]int32, d.seqLen+1)
	}
	return sequences, nil
}

func (d dummy) Len() uint64 { return dummyLen }
