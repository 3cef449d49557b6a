// Package rawlog reads the raw logs that measurements keep beside them: lines of JSON, compressed
// by gzip. zcat shows one.
package rawlog

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
)

// Suffix ends the name of a log.
const Suffix = ".jsonl.gz"

type log struct {
	*gzip.Reader
	file *os.File
}

// Open opens a log.
func Open(path string) (io.ReadCloser, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	lines, err := gzip.NewReader(file)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	return log{lines, file}, nil
}

// Close closes the file.
func (l log) Close() error { return errors.Join(l.Reader.Close(), l.file.Close()) }
