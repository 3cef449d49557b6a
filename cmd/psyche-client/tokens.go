package main

import (
	"log/slog"

	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/learn/model/generate"
)

// warnOfTokens logs token ids that are beyond the vocabulary of a model. The model was read from folder
// dir; it never generates these ids.
func warnOfTokens(s checkpoint.Snapshot, dir string, logger *slog.Logger) {
	for _, one := range generate.OutsideTokens(s) {
		logger.Warn("token id beyond the vocabulary of the model; correct the file", "folder", dir, "file", one.File, "field", one.Field, "id", one.ID, "vocab_size", one.VocabSize)
	}
}
