package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data/local"
)

const (
	heldOutSequences = 64
	trainSequences   = 2400 // of the longest run
	tokenSize        = 2
)

// text is the data of all systems: the sequences of the quickstart's run in its order, and
// sequences spread over the held-out text.
type text struct {
	training *local.Folder
	heldOut  [][]int32
	dir      string // of both as two-byte token files for peers.py
}

const (
	trainFile   = "train.u16"
	heldOutFile = "heldout.u16"
)

// openText opens the quickstart's data in the order of its state.toml.
func openText(ctx context.Context, folder, dir string, seed [32]byte, length int) (*text, error) {
	t := &text{dir: dir}
	options := local.Options{SeqLen: length, TokenSize: tokenSize}
	heldOut, err := local.Open(filepath.Join(folder, "heldout"), options)
	if err != nil {
		return nil, err
	}
	defer func() { _ = heldOut.Close() }()
	if heldOut.Len() < heldOutSequences {
		return nil, fmt.Errorf("%s: %d held-out sequences, want %d", folder, heldOut.Len(), heldOutSequences)
	}
	for i := range uint64(heldOutSequences) {
		at := i * (heldOut.Len() / heldOutSequences)
		one, err := heldOut.Sequences(ctx, assign.BatchID{Start: at, End: at + 1})
		if err != nil {
			return nil, err
		}
		t.heldOut = append(t.heldOut, one...)
	}
	options.Seed = &seed
	if t.training, err = local.Open(folder, options); err != nil {
		return nil, err
	}
	training, err := t.training.Sequences(ctx, assign.BatchID{Start: 0, End: trainSequences})
	if err == nil {
		err = errors.Join(writeTokens(filepath.Join(dir, trainFile), training), writeTokens(filepath.Join(dir, heldOutFile), t.heldOut))
	}
	if err != nil {
		return nil, errors.Join(err, t.training.Close())
	}
	return t, nil
}

func writeTokens(path string, sequences [][]int32) error {
	var b []byte
	for _, sequence := range sequences {
		for _, token := range sequence {
			b = binary.LittleEndian.AppendUint16(b, uint16(token))
		}
	}
	return os.WriteFile(path, b, 0o644)
}

func (t *text) close() error { return t.training.Close() }
