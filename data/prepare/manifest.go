package prepare

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// ManifestName is the file name of a Manifest.
const ManifestName = "data.json"

const maxManifestSize = 16 << 20

// Manifest says what a folder of token files holds and how it was made.
type Manifest struct {
	Version          int       `json:"version"` // 1
	Tokenizer        Tokenizer `json:"tokenizer"`
	TokenSizeInBytes int       `json:"token_size_in_bytes"`
	Begin            []int32   `json:"begin,omitempty"` // ids before each text
	Separator        []int32   `json:"separator"`       // ids after each text
	TextFiles        int       `json:"text_files"`
	Texts            int       `json:"texts,omitempty"`
	SkippedBinary    int       `json:"skipped_binary"` // files that were no text
	Tokens           uint64    `json:"tokens"`         // to train on
	HeldOutTokens    uint64    `json:"heldout_tokens"`
	Files            []File    `json:"files"`
	HeldOut          []File    `json:"heldout"`
}

// Tokenizer identifies what made the tokens.
type Tokenizer struct {
	Name      string `json:"name"`
	VocabSize int    `json:"vocab_size"`
	SHA256    string `json:"sha256"` // of its tokenizer.json
}

// File is one token file.
type File struct {
	Name   string `json:"name"` // path in the folder, with slashes
	Tokens uint64 `json:"tokens"`
	SHA256 string `json:"sha256"`
}

// ReadManifest reads the manifest of a folder. A folder without one is fs.ErrNotExist.
func ReadManifest(dir string) (Manifest, error) {
	path := filepath.Join(dir, ManifestName)
	info, err := os.Stat(path)
	if err != nil {
		return Manifest{}, fmt.Errorf("read manifest: %w", err)
	}
	if info.Size() > maxManifestSize {
		return Manifest{}, fmt.Errorf("read manifest %s: %d bytes, at most %d are read", path, info.Size(), maxManifestSize)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Manifest{}, fmt.Errorf("read manifest: %w", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	var m Manifest
	if err := decoder.Decode(&m); err != nil {
		return Manifest{}, fmt.Errorf("read manifest %s: %w", path, err)
	}
	if m.Version != 1 {
		return Manifest{}, fmt.Errorf("read manifest %s: version %d, only 1 is known", path, m.Version)
	}
	return m, nil
}

// encode returns the manifest as the file holds it.
func (m Manifest) encode() ([]byte, error) {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	return append(text, '\n'), nil
}
