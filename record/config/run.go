package config

import (
	"fmt"

	"github.com/psyche-go/psyche/core/coordinator"
)

// Run is the content of a state.toml.
type Run struct {
	RunID    string // may be empty if a flag sets it
	Config   coordinator.Config
	Model    Model
	Progress coordinator.Progress // of a saved state; zero in a new one

	// Warnings lists keys that have no effect in this implementation, or an unexpected one.
	Warnings []string
}

// LoadState reads a state.toml. Its error lists all problems of the file, one on each line.
func LoadState(path string) (Run, error) {
	text, err := readFile(path)
	if err != nil {
		return Run{}, err
	}
	return ParseState(path, text)
}

// ParseState parses the text of a state.toml. file is its name in errors.
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
