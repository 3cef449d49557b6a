package main

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/data/local"
	"github.com/psyche-go/psyche/learn/model/generate"
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

// warnOfTokens logs token ids that are beyond the vocabulary of a model. The model was read from folder
// dir; it never generates these ids.
func warnOfTokens(s checkpoint.Snapshot, dir string, logger *slog.Logger) {
	for _, one := range generate.OutsideTokens(s) {
		logger.Warn("token id beyond the vocabulary of the model; correct the file", "folder", dir, "file", one.File, "field", one.Field, "id", one.ID, "vocab_size", one.VocabSize)
	}
}
