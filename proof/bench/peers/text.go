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
	"github.com/psyche-go/psyche/files/data/manifest"
)

const (
	trainSequences = 2400 // of the longest run
	tokenSize      = 2
)

// text is the data of all systems: the sequences of the quickstart's run in its order, and the
// sample of the held-out text that all programs measure.
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
	sample, err := local.ReadSample(ctx, filepath.Join(folder, manifest.HeldOutFolder), options, local.SampleSequences)
	if err != nil {
		return nil, err
	}
	t.heldOut = sample.Sequences
	fmt.Println("held out:", sample)
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
