package data

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/files/data/tokens"
)

// dummyLen is the number of sequences that a dummy reports.
const dummyLen = 1 << 40

// dummy returns zeros.
type dummy struct{ seqLen int }

func newDummy(seqLen int) (Provider, error) {
	if seqLen < 1 || seqLen > tokens.MaxSeqLen {
		return nil, fmt.Errorf("sequence length %d, want 1 to %d", seqLen, tokens.MaxSeqLen)
	}
	return sequences{reader: dummy{seqLen: seqLen}, seqLen: seqLen}, nil
}

// Read implements reader.
func (d dummy) Read(ctx context.Context, indices []uint64) ([][]int32, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	read := make([][]int32, len(indices))
	for i := range read {
		read[i] = make([]int32, d.seqLen+1)
	}
	return read, nil
}

// Len implements reader.
func (d dummy) Len() uint64 { return dummyLen }

// Close implements reader.
func (d dummy) Close() error { return nil }
