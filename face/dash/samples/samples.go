// Package samples has texts that a run's models generated, for the page of the run.
//
// The run's host writes them to a file. No log proves them, so pages mark them as reported by the host.
package samples

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/psyche-go/psyche/face/dash/talk"
)

// Limits of the samples of a run.
const (
	maxPrompt = 256     // bytes
	MaxText   = 4 << 10 // bytes
	maxTexts  = 16
	maxFile   = 256 << 10 // bytes
)

// ErrInvalid means that a file does not have the form of Samples.
var ErrInvalid = errors.New("not a file with samples")

// Samples are continuations of the same prompt by the models of one run.
type Samples struct {
	RunID  string `json:"run_id"`
	Prompt string `json:"prompt"`
	Texts  []Text `json:"texts"` // in the order of their steps
}

// Text is a text that one model generated.
type Text struct {
	Step uint32 `json:"step"` // of the model; 0: the initial model
	Text string `json:"text"` // without the prompt
}

// Encode returns the content of a file with the samples.
func (s Samples) Encode() ([]byte, error) {
	content, err := json.MarshalIndent(s, "", "  ")
	return append(content, '\n'), err
}

// Read reads a file with samples. It replaces the control characters of their texts, and shortens long texts. It
// returns ErrInvalid if the file contains anything else, or is not a regular file.
func Read(path string) (s Samples, err error) {
	info, err := os.Stat(path)
	if err != nil {
		return s, err
	}
	if !info.Mode().IsRegular() { // opening a pipe would block
		return s, fmt.Errorf("%w: %s", ErrInvalid, path)
	}
	file, err := os.Open(path)
	if err != nil {
		return s, err
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(content, &s); err != nil || len(content) > maxFile || len(s.Texts) > maxTexts {
		return Samples{}, fmt.Errorf("%w: %s", ErrInvalid, path)
	}
	s.Prompt = talk.Plain(s.Prompt, maxPrompt)
	for i := range s.Texts {
		s.Texts[i].Text = talk.Plain(s.Texts[i].Text, MaxText)
	}
	return s, nil
}

// File is a file with samples, which may appear and change. It is safe for concurrent use.
type File struct {
	path string

	mu       sync.Mutex
	size     int64
	modified time.Time
	newest   Samples
}

// Watch returns the file at a path.
func Watch(path string) *File { return &File{path: path} }

// Of returns the samples of a run, or nil if the file has none.
func (f *File) Of(runID string) *Samples {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.path)
	if err != nil {
		return nil
	}
	if info.Size() != f.size || !info.ModTime().Equal(f.modified) {
		f.size, f.modified = info.Size(), info.ModTime()
		f.newest, _ = Read(f.path) // without samples after an error
	}
	if f.newest.RunID != runID || len(f.newest.Texts) == 0 {
		return nil
	}
	s := f.newest
	return &s
}
