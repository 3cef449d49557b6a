package prepare

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/files/data/manifest"
)

// shardWriter writes tokens to files of at most limit tokens. At the end, it appends a last file of
// at most a sixteenth of the limit to the file before it, so that no file is too short to be
// useful.
type shardWriter struct {
	dir       string
	name      func(number int) string
	limit     uint64
	tokenSize int

	counts []uint64 // tokens of every file, the open file last
	file   *os.File
	buffer *bufio.Writer
	raw    []byte
}

func (w *shardWriter) path(number int) string {
	return filepath.Join(w.dir, filepath.FromSlash(w.name(number)))
}

// resume continues at the state of an earlier writer.
func (w *shardWriter) resume(at written) error {
	w.counts, w.file = append([]uint64{}, at.Files...), nil
	for i, count := range w.counts {
		info, err := os.Stat(w.path(i))
		if err != nil {
			return fmt.Errorf("resume writing tokens: %w", err)
		}
		want := int64(count) * int64(w.tokenSize)
		if info.Size() < want {
			return fmt.Errorf("resume writing tokens: %s has %d bytes, want %d; to start again, remove %s", w.path(i), info.Size(), want, w.dir)
		}
		if err := os.Truncate(w.path(i), want); err != nil {
			return fmt.Errorf("resume writing tokens: %w", err)
		}
	}
	if len(w.counts) == 0 {
		return nil
	}
	last := len(w.counts) - 1
	file, err := os.OpenFile(w.path(last), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("resume writing tokens: %w", err)
	}
	w.use(file)
	if _, err := file.Seek(0, io.SeekEnd); err != nil {
		return fmt.Errorf("resume writing tokens: %w", err)
	}
	return nil
}

func (w *shardWriter) use(file *os.File) {
	w.file, w.buffer = file, bufio.NewWriterSize(file, 1<<20)
}

// write appends tokens.
func (w *shardWriter) write(tokens []int32) error {
	for len(tokens) > 0 {
		if w.file == nil || w.counts[len(w.counts)-1] == w.limit {
			if err := w.open(); err != nil {
				return err
			}
		}
		count := &w.counts[len(w.counts)-1]
		n := int(min(w.limit-*count, uint64(len(tokens))))
		w.raw = w.raw[:0]
		for _, token := range tokens[:n] {
			if w.tokenSize == 2 {
				w.raw = binary.LittleEndian.AppendUint16(w.raw, uint16(token))
			} else {
				w.raw = binary.LittleEndian.AppendUint32(w.raw, uint32(token))
			}
		}
		if _, err := w.buffer.Write(w.raw); err != nil {
			return fmt.Errorf("write tokens: %w", err)
		}
		*count += uint64(n)
		tokens = tokens[n:]
	}
	return nil
}

// open creates a file.
func (w *shardWriter) open() error {
	if err := w.close(); err != nil {
		return err
	}
	path := w.path(len(w.counts))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write tokens: %w", err)
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write tokens: %w", err)
	}
	w.use(file)
	w.counts = append(w.counts, 0)
	return nil
}

// sync writes everything to the disk and returns the state.
func (w *shardWriter) sync() (written, error) {
	if w.file != nil {
		err := w.buffer.Flush()
		if err == nil {
			err = w.file.Sync()
		}
		if err != nil {
			return written{}, fmt.Errorf("write tokens: %w", err)
		}
	}
	return written{Files: append([]uint64{}, w.counts...)}, nil
}

// close completes the open file, if any.
func (w *shardWriter) close() error {
	if w.file == nil {
		return nil
	}
	_, err := w.sync()
	if closeErr := w.file.Close(); err == nil && closeErr != nil {
		err = fmt.Errorf("write tokens: %w", closeErr)
	}
	w.file = nil
	return err
}

// finish completes the files and describes them.
func (w *shardWriter) finish() ([]manifest.File, error) {
	if err := w.close(); err != nil {
		return nil, err
	}
	if last := len(w.counts) - 1; last > 0 && w.counts[last] <= w.limit/16 {
		if err := w.join(last); err != nil {
			return nil, fmt.Errorf("write tokens: %w", err)
		}
	}
	files := make([]manifest.File, len(w.counts))
	for i, count := range w.counts {
		sum, err := hashFile(w.path(i))
		if err != nil {
			return nil, fmt.Errorf("write tokens: %w", err)
		}
		files[i] = manifest.File{Name: w.name(i), Tokens: count, SHA256: sum}
	}
	return files, nil
}

// join appends a file to the previous file. The appended file is not removed: a run that is killed after
// the join resumes from the journal, which counts it as a separate file.
func (w *shardWriter) join(number int) (err error) {
	tail, err := os.ReadFile(w.path(number))
	if err != nil {
		return err
	}
	file, err := os.OpenFile(w.path(number-1), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	if _, err = file.Write(tail); err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	w.counts[number-1] += w.counts[number]
	w.counts = w.counts[:number]
	return nil
}

func hashFile(path string) (sum string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// abandon closes the open file, if any, after an error.
func (w *shardWriter) abandon() {
	if w.file != nil {
		_ = w.file.Close() // tokens after the last entry of the journal are written again
	}
}
