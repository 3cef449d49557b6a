// Package rawlog reads the raw logs of measurements: lines of JSON, compressed with gzip. zcat
// shows a log.
package rawlog

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
)

// Suffix is the suffix of a log's name.
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
