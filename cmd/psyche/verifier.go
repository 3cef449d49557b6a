package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/face/dash"
)

// pageVerifier returns the verifier that a page offers to browsers; nil if there is none.
func pageVerifier(logger *slog.Logger) *dash.Verifier {
	verifier, err := dash.FindVerifier()
	if err != nil {
		logger.Info("the page cannot verify logs in the browser", "reason", err)
		return nil
	}
	return verifier
}

// verifierLine describes the result of FindVerifier for people.
func verifierLine() string {
	verifier, err := dash.FindVerifier()
	switch {
	case errors.Is(err, dash.ErrNoVerifier):
		return "missing: build the verifier for browsers with make verifier"
	case err != nil:
		return err.Error()
	}
	return fmt.Sprintf("ready: sha256 %x", sha256.Sum256(verifier.Program()))
}

// mayWrite returns an error if a file already exists, before long work starts. It accepts an empty
// name.
func mayWrite(output string) error {
	if _, err := os.Lstat(output); err == nil {
		return fmt.Errorf("%s already exists and is not overwritten: choose another name", output)
	}
	return nil
}

// savePage writes the log of a run as a page that verifies itself. It does not overwrite a file.
func savePage(output, logFile, source string, to io.Writer) error {
	if err := mayWrite(output); err != nil {
		return err
	}
	verifier, err := dash.FindVerifier()
	if err != nil {
		return err
	}
	from, done, err := metered(logFile, filepath.Base(logFile), to)
	if err != nil {
		return err
	}
	defer done()
	return verifier.SaveLog(output, from, logFile, source)
}
