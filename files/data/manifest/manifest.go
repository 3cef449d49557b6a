// Package manifest reads and writes data.json, a file in a folder of token files that describes
// their content and origin.
package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Name is the file name of a Manifest.
const Name = "data.json"

// HeldOutFolder is the folder of held-out tokens, in the folder of a Manifest.
const HeldOutFolder = "heldout"

const maxSize = 16 << 20

// Manifest describes the content and origin of a folder of token files.
type Manifest struct {
	Version          int       `json:"version"` // 1
	Tokenizer        Tokenizer `json:"tokenizer"`
	TokenSizeInBytes int       `json:"token_size_in_bytes"`
	Begin            []int32   `json:"begin,omitempty"` // IDs before each text
	Separator        []int32   `json:"separator"`       // IDs after each text
	TextFiles        int       `json:"text_files"`
	Texts            int       `json:"texts,omitempty"`
	SkippedBinary    int       `json:"skipped_binary"`            // files that are not text
	HiddenLeftOut    int       `json:"hidden_left_out,omitempty"` // hidden files and folders
	LinksFollowed    int       `json:"links_followed,omitempty"`
	LinksLeftOut     int       `json:"links_left_out,omitempty"`   // see walk.Counts.Dead
	SpecialLeftOut   int       `json:"special_left_out,omitempty"` // pipes, sockets, devices
	Tokens           uint64    `json:"tokens"`                     // tokens for training
	HeldOutTokens    uint64    `json:"heldout_tokens"`
	Files            []File    `json:"files"`
	HeldOut          []File    `json:"heldout"`
}

// Tokenizer identifies the tokenizer of the tokens.
type Tokenizer struct {
	Name      string `json:"name"`
	VocabSize int    `json:"vocab_size"`
	SHA256    string `json:"sha256"` // of its tokenizer.json or tokenizer.model
}

// File is one token file.
type File struct {
	Name   string `json:"name"` // path in the folder, with slashes
	Tokens uint64 `json:"tokens"`
	SHA256 string `json:"sha256"`
}

// Read reads the manifest of a folder. found is false if there is none, or if the file of that name
// has another purpose: a JSON value without token_size_in_bytes.
func Read(dir string) (m Manifest, found bool, err error) {
	path := filepath.Join(dir, Name)
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Manifest{}, false, nil
	}
	if err != nil {
		return Manifest{}, false, fmt.Errorf("read manifest: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxSize {
		return Manifest{}, false, fmt.Errorf("read manifest %s: not a regular file of at most %d bytes", path, maxSize)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return Manifest{}, false, fmt.Errorf("read manifest: %w", err)
	}
	if m, found, err = parse(text); err != nil {
		return Manifest{}, false, fmt.Errorf("read manifest %s: %w; make the data again, or move the file away if it does not belong to the data", path, err)
	}
	return m, found, nil
}

func parse(text []byte) (m Manifest, found bool, err error) {
	var known struct {
		Size json.RawMessage `json:"token_size_in_bytes"`
	}
	if err := json.Unmarshal(text, &known); err != nil {
		if _, other := errors.AsType[*json.UnmarshalTypeError](err); other { // JSON, but not an object
			return Manifest{}, false, nil
		}
		return Manifest{}, false, err
	}
	if known.Size == nil {
		return Manifest{}, false, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&m); err != nil {
		return Manifest{}, false, err
	}
	switch {
	case m.Version != 1:
		return Manifest{}, false, fmt.Errorf("version %d, only 1 is known", m.Version)
	case m.TokenSizeInBytes != 2 && m.TokenSizeInBytes != 4:
		return Manifest{}, false, fmt.Errorf("token_size_in_bytes is %d, want 2 or 4", m.TokenSizeInBytes)
	}
	return m, true, nil
}

// Encode returns the content of the manifest's file.
func (m Manifest) Encode() ([]byte, error) {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	return append(text, '\n'), nil
}
