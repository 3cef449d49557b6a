package main

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data/local"
)

// readFirst returns the first sequences of a token file or folder, at most limit, and their total
// number. A limit of 0 means all.
func readFirst(ctx context.Context, path string, o local.Options, limit uint64) (sequences [][]int32, of uint64, err error) {
	folder, err := local.Open(path, o)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = folder.Close() }()
	count := folder.Len()
	if limit > 0 {
		count = min(count, limit)
	}
	if sequences, err = folder.Sequences(ctx, assign.BatchID{End: count}); err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", path, err)
	}
	return sequences, folder.Len(), nil
}
