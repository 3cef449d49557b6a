package config

import (
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Run is what a state.toml says of a run.
type Run struct {
	RunID    string // may be empty; a flag gives it then
	Config   coordinator.Config
	Model    Model
	Progress coordinator.Progress // of a saved state; zero in a fresh one

	// Warnings names keys that have no meaning here, or another than one may think.
	Warnings []string
}

// LoadState reads a state.toml. The error lists everything that is wrong with it, one
// line each.
func LoadState(path string) (Run, error) {
	text, err := readFile(path)
	if err != nil {
		return Run{}, err
	}
	return ParseState(path, text)
}

// ParseState reads the text of a state.toml; file is what errors call it.
func ParseState(file string, text []byte) (Run, error) {
	root, err := parse(file, text)
	if err != nil {
		return Run{}, err
	}
	run := readRun(root)
	if err := root.err(); err != nil {
		return Run{}, err
	}
	if _, err := EncodeModel(run.Model); err != nil {
		return Run{}, fmt.Errorf("%s: %w", file, err)
	}
	return run, nil
}
