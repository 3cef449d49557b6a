package data_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/record/config"
)

// Sequences of a folder of two-byte tokens, by their index. A sequence has one token more than the
// trained length: the last token is only the target of the token before it.
func Example() {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	var tokens []byte
	for token := range byte(20) {
		tokens = append(tokens, token, 0)
	}
	if err := os.WriteFile(filepath.Join(dir, "tokens.ds"), tokens, 0o600); err != nil {
		log.Fatal(err)
	}

	ctx := context.Background()
	location := config.DataLocation{Local: &config.LocalData{Path: dir, TokenSize: config.TwoBytes}}
	provider, err := data.New(ctx, []config.DataLocation{location}, data.Options{SeqLen: 4, VocabSize: 256})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = provider.Close() }()
	batch, err := provider.Batch(ctx, assign.BatchID{Start: 1, End: 3})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(provider.Len(), "sequences; batch", batch.ID, "is", batch.Sequences)

	// Output:
	// 4 sequences; batch [1,3) is [[4 5 6 7 8] [8 9 10 11 12]]
}
