package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/face/dash"
	"github.com/psyche-go/psyche/face/dash/verify"
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
	var log bytes.Buffer
	v := verify.New()
	_, err = io.Copy(v, io.TeeReader(io.LimitReader(from, dash.MaxSavedLog+1), &log))
	found := v.Close(verify.Told{})
	if log.Len() > dash.MaxSavedLog {
		return fmt.Errorf("%w: %s exceeds %d bytes; verify it with psyche run replay, or show it with psyche dash", dash.ErrLogTooLong, logFile, dash.MaxSavedLog)
	}
	if !found.Verified {
		return fmt.Errorf("%s: %s", logFile, found.Problem)
	}
	if err != nil {
		return err
	}
	content := log.Bytes()[:found.Bytes] // without the incomplete write at the end
	told := verify.Told{Run: found.Run, Records: found.Records, Head: found.Head, State: found.State}
	partial, err := os.CreateTemp(filepath.Dir(output), ".page-*")
	if err != nil {
		return fmt.Errorf("save the page: %w", err)
	}
	defer func() { _ = os.Remove(partial.Name()) }() // fails after the rename
	err = verifier.Save(partial, content, told, source)
	if err = errors.Join(err, partial.Chmod(0o644), partial.Close()); err != nil {
		return err
	}
	// A link, unlike a rename, fails if the file was created in the meantime.
	if err := os.Link(partial.Name(), output); err != nil {
		return fmt.Errorf("save the page: %w", err)
	}
	return nil
}
