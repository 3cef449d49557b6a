package prepare

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"os"
	"path/filepath"
)

// shardWriter writes tokens to files of at most limit tokens, or slightly more: what
// would be a last file of less than a sixteenth of the limit goes to the file before,
// so that no file is too short to be of use.
type shardWriter struct {
	dir       string // temporary folder
	name      func(number int) string
	limit     int
	tokenSize int

	tail   []int32 // beyond the limit of the open file
	file   *os.File
	buffer *bufio.Writer
	hash   hash.Hash
	raw    []byte
	shard  File
	done   []File
}

// write appends tokens.
func (w *shardWriter) write(tokens []int32) error {
	for len(tokens) > 0 {
		if w.file == nil {
			if err := w.open(); err != nil {
				return err
			}
		}
		if room := w.limit - int(w.shard.Tokens); room > 0 {
			n := min(room, len(tokens))
			if err := w.append(tokens[:n]); err != nil {
				return err
			}
			tokens = tokens[n:]
			continue
		}
		n := min(w.limit/16+1-len(w.tail), len(tokens))
		w.tail = append(w.tail, tokens[:n]...)
		tokens = tokens[n:]
		if len(w.tail) > w.limit/16 {
			tail := w.tail
			w.tail = nil
			if err := w.close(); err != nil {
				return err
			}
			if err := w.open(); err != nil {
				return err
			}
			if err := w.append(tail); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *shardWriter) open() error {
	w.shard = File{Name: w.name(len(w.done))}
	path := filepath.Join(w.dir, filepath.FromSlash(w.shard.Name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write tokens: %w", err)
	}
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("write tokens: %w", err)
	}
	w.file, w.hash = file, sha256.New()
	w.buffer = bufio.NewWriterSize(file, 1<<20)
	return nil
}

// append writes tokens to the open file.
func (w *shardWriter) append(tokens []int32) error {
	w.raw = w.raw[:0]
	for _, token := range tokens {
		if w.tokenSize == 2 {
			w.raw = binary.LittleEndian.AppendUint16(w.raw, uint16(token))
		} else {
			w.raw = binary.LittleEndian.AppendUint32(w.raw, uint32(token))
		}
	}
	w.hash.Write(w.raw)
	w.shard.Tokens += uint64(len(tokens))
	if _, err := w.buffer.Write(w.raw); err != nil {
		return fmt.Errorf("write tokens: %w", err)
	}
	return nil
}

// close completes the open file.
func (w *shardWriter) close() error {
	err := w.buffer.Flush()
	if err == nil {
		err = w.file.Sync()
	}
	if closeErr := w.file.Close(); err == nil {
		err = closeErr
	}
	w.file = nil
	if err != nil {
		return fmt.Errorf("write tokens: %w", err)
	}
	w.shard.SHA256 = hex.EncodeToString(w.hash.Sum(nil))
	w.done = append(w.done, w.shard)
	return nil
}

// finish writes what is left and returns the files.
func (w *shardWriter) finish() ([]File, error) {
	if w.file == nil {
		return w.done, nil
	}
	if err := w.append(w.tail); err != nil {
		return nil, err
	}
	w.tail = nil
	if err := w.close(); err != nil {
		return nil, err
	}
	return w.done, nil
}

// abandon closes the open file, if any, after an error.
func (w *shardWriter) abandon() {
	if w.file != nil {
		_ = w.file.Close() // the folder is removed
	}
}
