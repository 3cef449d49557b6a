package safetensors

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/psyche-go/psyche/base/atomicfile"
)

// Write writes a file, atomically if the folder's file system supports renaming: even after a
// failure, path is the old file or the complete new one.
func Write(path string, tensors []Tensor, metadata map[string]string) error {
	return WriteThrough(path, tensors, metadata, whole)
}

// whole writes data unchanged.
func whole(w io.Writer, data []byte) error {
	_, err := w.Write(data)
	return err
}

// WriteThrough is like Write, but calls through to write the data of each tensor. It does not read
// the data itself.
func WriteThrough(path string, tensors []Tensor, metadata map[string]string, through func(w io.Writer, data []byte) error) (err error) {
	header, order, err := encodeHeader(tensors, metadata)
	if err != nil {
		return fmt.Errorf("write safetensors %s: %w", path, err)
	}
	temporary := filepath.Join(filepath.Dir(path), UnfinishedName(filepath.Base(path)))
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	defer func() {
		if err != nil {
			_ = file.Close()
			_ = os.Remove(temporary)
		}
	}()
	if err := encodeTo(file, header, order, through); err != nil {
		return fmt.Errorf("write safetensors %s: %w", path, err)
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("write safetensors %s: %w", path, err)
	}
	if err := file.Close(); err != nil {
		return fmt.Errorf("write safetensors %s: %w", path, err)
	}
	if err := os.Rename(temporary, path); err != nil {
		return fmt.Errorf("write safetensors: %w", err)
	}
	if err := atomicfile.SyncFolder(filepath.Dir(path)); err != nil {
		return fmt.Errorf("sync folder: %w", err)
	}
	return nil
}

// suffixLength is the number of characters of rand.Text, the suffix of unfinished names.
const suffixLength = 26

// UnfinishedName returns a new temporary name for a file or folder that is renamed to base once it
// is complete. A process that is killed meanwhile leaves it behind.
func UnfinishedName(base string) string { return "." + base + "." + rand.Text() }

// Unfinished returns the base of a name that UnfinishedName returned.
func Unfinished(name string) (base string, ok bool) {
	if len(name) < suffixLength+3 || name[0] != '.' {
		return "", false
	}
	base, suffix := name[1:len(name)-suffixLength-1], name[len(name)-suffixLength:]
	random := strings.Trim(suffix, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567") == ""
	return base, random && name[len(base)+1] == '.'
}

func encodeTo(w io.Writer, header []byte, order []Tensor, through func(w io.Writer, data []byte) error) error {
	buffered := bufio.NewWriterSize(w, 1<<20)
	if _, err := buffered.Write(header); err != nil {
		return err
	}
	for _, tensor := range order {
		if err := through(buffered, tensor.Data); err != nil {
			return err
		}
	}
	return buffered.Flush()
}

// headerEntry has the header's fields in the order of the reference implementation.
type headerEntry struct {
	DType   DType    `json:"dtype"`
	Shape   []int64  `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"`
}

// encodeHeader returns the length prefix and the padded header, and the tensors in
// the order of their data.
func encodeHeader(tensors []Tensor, metadata map[string]string) ([]byte, []Tensor, error) {
	order := slices.Clone(tensors)
	slices.SortFunc(order, byLayout)
	header := headerWriter{buffer: bytes.NewBuffer(make([]byte, lengthSize))}
	header.buffer.WriteByte('{')
	if metadata != nil {
		if err := header.metadata(metadata); err != nil {
			return nil, nil, err
		}
	}
	seen := make(map[string]bool, len(order))
	var at int64
	for _, tensor := range order {
		if err := tensor.Validate(); err != nil {
			return nil, nil, err
		}
		if tensor.Name == metadataKey || seen[tensor.Name] || !utf8.ValidString(tensor.Name) {
			return nil, nil, fmt.Errorf("%w: tensor name %q is reserved, not UTF-8, or occurs twice", errInvalid, tensor.Name)
		}
		seen[tensor.Name] = true
		end := at + int64(len(tensor.Data))
		header.key(tensor.Name)
		header.value(headerEntry{tensor.DType, append([]int64{}, tensor.Shape...), [2]int64{at, end}})
		at = end
	}
	header.buffer.WriteByte('}')
	for header.buffer.Len()%8 != 0 {
		header.buffer.WriteByte(' ')
	}
	raw := header.buffer.Bytes()
	length := len(raw) - lengthSize
	if length > maxHeaderSize {
		return nil, nil, fmt.Errorf("%w: header has %d bytes, the limit is %d", errInvalid, length, maxHeaderSize)
	}
	binary.LittleEndian.PutUint64(raw, uint64(length))
	return raw, order, nil
}

type headerWriter struct {
	buffer *bytes.Buffer
	more   bool
}

func (h *headerWriter) metadata(metadata map[string]string) error {
	h.key(metadataKey)
	h.buffer.WriteByte('{')
	h.more = false
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		if !utf8.ValidString(key) || !utf8.ValidString(metadata[key]) {
			return fmt.Errorf("%w: metadata %q is not UTF-8", errInvalid, key)
		}
		h.key(key)
		h.value(metadata[key])
	}
	h.buffer.WriteByte('}')
	h.more = true
	return nil
}

func (h *headerWriter) key(key string) {
	if h.more {
		h.buffer.WriteByte(',')
	}
	h.more = true
	h.value(key)
	h.buffer.WriteByte(':')
}

// value appends compact JSON. Its arguments are strings and headerEntry, which always encode.
func (h *headerWriter) value(v any) {
	encoder := json.NewEncoder(h.buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		panic("safetensors: encode header: " + err.Error())
	}
	h.buffer.Truncate(h.buffer.Len() - 1) // remove the encoder's line feed
}
