package main

import (
	"context"
	"fmt"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/data/local"
)

// readFirst returns the first sequences of a token file or folder, at most limit of
// them; 0 means all.
func readFirst(ctx context.Context, path string, o local.Options, limit uint64) ([][]int32, error) {
	folder, err := local.Open(path, o)
	if err != nil {
		return nil, err
	}
	defer func() { _ = folder.Close() }()
	count := folder.Len()
	if limit > 0 {
		count = min(count, limit)
	}
	sequences, err := folder.Sequences(ctx, assign.BatchID{End: count})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return sequences, nil
}
