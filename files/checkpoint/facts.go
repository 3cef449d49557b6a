package checkpoint

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// FactsFile is the name of the file with the Facts of a checkpoint.
const FactsFile = "psyche.json"

// maxFactsSize is the maximum size of a FactsFile in bytes.
const maxFactsSize = 16 << 10

// ErrNoFacts means that a checkpoint has no FactsFile, because it does not come from a run.
var ErrNoFacts = errors.New("checkpoint has no " + FactsFile)

// Facts are the position of a checkpoint in its run, from which another run can continue. All
// clients that save the same checkpoint write the same facts.
type Facts struct {
	RunID     string `json:"run_id"`
	Epoch     uint32 `json:"epoch"`      // number of completed epochs
	Step      uint32 `json:"step"`       // number of rounds that the model includes
	DataIndex uint64 `json:"data_index"` // first sequence that the model does not include
	MaxSeqLen uint32 `json:"max_seq_len"`
	Digest    string `json:"digest"` // BLAKE3 of the manifest, 64 hex digits
}

// Extra returns the FactsFile for WriteDir.
func (f Facts) Extra() Extra {
	return Extra{Name: FactsFile, Write: func(path string) error { return writeFile(path, f.Encode()) }}
}

// Encode returns the content of a FactsFile.
func (f Facts) Encode() []byte {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		panic("checkpoint: encode facts: " + err.Error()) // strings and integers always encode
	}
	return append(text, '\n')
}

// ParseFacts parses a FactsFile. It ignores unknown keys, which a later version may add.
func ParseFacts(text []byte) (Facts, error) {
	var f Facts
	if len(text) > maxFactsSize {
		return f, fmt.Errorf("%w: %s has %d bytes, the limit is %d", ErrInvalid, FactsFile, len(text), maxFactsSize)
	}
	if err := json.NewDecoder(bytes.NewReader(text)).Decode(&f); err != nil {
		return f, fmt.Errorf("%w: %s: %w", ErrInvalid, FactsFile, err)
	}
	switch {
	case f.RunID == "" || len(f.RunID) > maxNameLength:
		return f, fmt.Errorf("%w: %s: invalid run_id %q", ErrInvalid, FactsFile, f.RunID)
	case len(f.Digest) != 64:
		return f, fmt.Errorf("%w: %s: digest %q, want 64 hex digits", ErrInvalid, FactsFile, f.Digest)
	}
	return f, nil
}

// ReadFacts reads the FactsFile of a folder.
func ReadFacts(dir string) (Facts, error) {
	path := filepath.Join(dir, FactsFile)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Facts{}, fmt.Errorf("%w: %s", ErrNoFacts, dir)
	case err != nil:
		return Facts{}, fmt.Errorf("read facts: %w", err)
	case !info.Mode().IsRegular() || info.Size() > maxFactsSize:
		return Facts{}, fmt.Errorf("%w: %s is not a regular file of at most %d bytes", ErrInvalid, path, maxFactsSize)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Facts{}, fmt.Errorf("read facts: %w", err)
	}
	f, err := ParseFacts(text)
	if err != nil {
		return f, fmt.Errorf("read facts of %s: %w", dir, err)
	}
	return f, nil
}
