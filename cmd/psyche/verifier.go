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
	"github.com/psyche-go/psyche/face/dash/verify"
)

// pageVerifier returns the verifier that a page gives to browsers, nil if there is none.
func pageVerifier(logger *slog.Logger) *dash.Verifier {
	verifier, err := dash.FindVerifier()
	if err != nil {
		logger.Info("the page does not offer to check logs in the browser", "reason", err)
		return nil
	}
	return verifier
}

// verifierLine says for people what FindVerifier finds.
func verifierLine() string {
	verifier, err := dash.FindVerifier()
	switch {
	case errors.Is(err, dash.ErrNoVerifier):
		return "not there: make verifier builds what pages give to browsers"
	case err != nil:
		return err.Error()
	}
	return fmt.Sprintf("ready: sha256 %x", sha256.Sum256(verifier.Program()))
}

// savePage writes the log of a run as a page that verifies itself. A file that is there is not overwritten.
func savePage(output, logFile, source string, to io.Writer) error {
	if _, err := os.Lstat(output); err == nil {
		return fmt.Errorf("%s is there already and is not overwritten: choose another name", output)
	}
	verifier, err := dash.FindVerifier()
	if err != nil {
		return err
	}
	log, summary, err := replayMetered(logFile, filepath.Base(logFile), to)
	if err != nil {
		return err
	}
	if summary.Size > dash.MaxSavedLog {
		return fmt.Errorf("%w: %s has %d bytes, a page takes %d; psyche run replay verifies it, psyche dash shows it", dash.ErrLogTooLong, logFile, summary.Size, dash.MaxSavedLog)
	}
	file, err := os.Open(logFile)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, summary.Size))
	if err != nil {
		return err
	}
	run, state := log.Run(), log.State.Hash()
	told := verify.Told{Run: fmt.Sprintf("%x", run), Records: summary.Entries, Head: fmt.Sprintf("%x", summary.Last), State: fmt.Sprintf("%x", state)}
	partial, err := os.CreateTemp(filepath.Dir(output), ".page-*")
	if err != nil {
		return fmt.Errorf("save a page: %w", err)
	}
	defer func() { _ = os.Remove(partial.Name()) }() // fails after the rename
	err = verifier.Save(partial, content, told, source)
	if err = errors.Join(err, partial.Chmod(0o644), partial.Close()); err != nil {
		return err
	}
	// A link, unlike a rename, fails when somebody else has made the file meanwhile.
	if err := os.Link(partial.Name(), output); err != nil {
		return fmt.Errorf("save a page: %w", err)
	}
	return nil
}
