package local

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data/tokens"
)

// SampleSequences is the number of sequences on which programs measure a held-out loss, unless the
// user chooses another number.
const SampleSequences = 256

// ClaimSequences is the number of sequences on which a member of a run measures the held-out loss that it
// claims, unless its user chooses another number. Other members wait for the measurement.
const ClaimSequences = 32

// Sample is the part of some data on which a program measures a loss. Two losses are comparable if
// their samples have equal names and come from equal files.
type Sample struct {
	Sequences [][]int32
	Of        uint64 // sequences in the data
	seqLen    int
}

// ReadSample reads n sequences of a token file or folder, spread evenly over the data, so that no
// file dominates: sequence i of the sample is sequence ⌊i·Of/n⌋ of the data. If n is 0 or more than
// Of, the sample is all data.
func ReadSample(ctx context.Context, path string, o Options, n uint64) (Sample, error) {
	folder, err := Open(path, o)
	if err != nil {
		return Sample{}, err
	}
	defer func() { _ = folder.Close() }()
	of := folder.Len()
	if n == 0 || n > of {
		n = of
	}
	if err := tokens.CheckBatch(assign.BatchID{End: n}, o.SeqLen); err != nil {
		return Sample{}, fmt.Errorf("read %s: %w", path, err)
	}
	indices := make([]uint64, n)
	for i := range n {
		indices[i] = i*(of/n) + i*(of%n)/n
	}
	sequences, err := folder.Read(ctx, indices)
	if err != nil {
		return Sample{}, fmt.Errorf("read %s: %w", path, err)
	}
	return Sample{sequences, of, o.SeqLen}, nil
}

// String returns the sample's name, such as "256 of 1901 sequences of 256 tokens, spread".
func (s Sample) String() string {
	if n := uint64(len(s.Sequences)); n < s.Of {
		return fmt.Sprintf("%d of %d sequences of %d tokens, spread", n, s.Of, s.seqLen)
	}
	return fmt.Sprintf("all %d sequences of %d tokens", s.Of, s.seqLen)
}
