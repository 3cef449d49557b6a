package checkpoint

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/safetensors"
	"lukechampine.com/blake3"
)

// DigestDir returns the digest of the manifest that the snapshot of a model folder has. It
// holds no tensor in memory. A folder that has the digest of a model has that model's tensors
// and files and no more bytes in them, so that ReadDir needs no more memory than the model;
// everything else that is wrong with a folder is left for ReadDir to find.
func DigestDir(ctx context.Context, dir string) ([32]byte, error) {
	m, err := manifestOf(ctx, dir)
	if err != nil {
		return [32]byte{}, fmt.Errorf("digest of checkpoint %s: %w", dir, err)
	}
	return m.Digest(), nil
}

func manifestOf(ctx context.Context, dir string) (m Manifest, err error) {
	entries, err := os.ReadDir(dir) // sorted
	if err != nil {
		return m, err
	}
	for _, entry := range entries {
		if !besideTensors(entry.Name()) {
			continue
		}
		data, err := readCapped(filepath.Join(dir, entry.Name()))
		if err != nil {
			return m, err
		}
		m.Files = append(m.Files, Entry{Name: entry.Name(), Size: uint64(len(data)), Hash: blake3.Sum256(data)})
	}
	names, err := tensorFiles(dir)
	if err != nil {
		return m, err
	}
	for i, name := range names {
		path := filepath.Join(dir, name)
		tensors, step, err := hashTensors(ctx, path)
		switch {
		case err != nil:
			return m, fmt.Errorf("%s: %w", path, err)
		case i > 0 && step != m.Step:
			return m, fmt.Errorf("%w: shards are of steps %d and %d", ErrInvalid, m.Step, step)
		case len(m.Tensors)+len(tensors) > MaxTensors:
			return m, fmt.Errorf("%w: more than %d tensors", ErrInvalid, MaxTensors)
		}
		m.Step, m.Tensors = step, append(m.Tensors, tensors...)
	}
	slices.SortFunc(m.Tensors, func(a, b TensorEntry) int { return strings.Compare(a.Name, b.Name) })
	return m, m.Validate()
}

// tensorFiles returns the names of the files that a folder's tensors are in.
func tensorFiles(dir string) ([]string, error) {
	_, err := os.Stat(filepath.Join(dir, singleFile))
	if !errors.Is(err, fs.ErrNotExist) {
		return []string{singleFile}, err
	}
	data, err := readCapped(filepath.Join(dir, indexFile))
	if err != nil {
		return nil, err
	}
	index, err := parseIndex(data)
	return index.files(), err
}

// headerEntry is what the header of a safetensors file says of a tensor.
type headerEntry struct {
	DType   safetensors.DType `json:"dtype"`
	Shape   []int64           `json:"shape"`
	Offsets [2]int64          `json:"data_offsets"`
}

// metadataKey is the one key of a header that names no tensor.
const metadataKey = "__metadata__"

// pieceSize is the bytes of a tensor that are hashed at once.
const pieceSize = 1 << 20

// hashTensors reads a file of tensors in pieces. The sizes of the tensors that it returns add
// up to that of the file's data.
func hashTensors(ctx context.Context, path string) (tensors []TensorEntry, step uint32, err error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = file.Close() }()
	header, data, err := readHeader(file)
	if err != nil {
		return nil, 0, err
	}
	if raw, found := header[metadataKey]; found {
		var metadata map[string]string
		if err := json.Unmarshal(raw, &metadata); err != nil {
			return nil, 0, fmt.Errorf("%w: %s: %w", ErrInvalid, metadataKey, err)
		}
		if step, err = parseStep(path, metadata); err != nil {
			return nil, 0, err
		}
		delete(header, metadataKey)
	}
	left, piece := data.Size(), make([]byte, pieceSize)
	for _, name := range slices.Sorted(maps.Keys(header)) {
		var e headerEntry
		if err := json.Unmarshal(header[name], &e); err != nil {
			return nil, 0, fmt.Errorf("%w: tensor %q: %w", ErrInvalid, name, err)
		}
		size, err := safetensors.Size(e.DType, e.Shape)
		if err != nil {
			return nil, 0, fmt.Errorf("%w: tensor %q: %w", ErrInvalid, name, err)
		}
		if begin := e.Offsets[0]; size > left || begin < 0 || begin > data.Size()-size || e.Offsets[1] != begin+size {
			return nil, 0, fmt.Errorf("%w: tensor %q of %d bytes lies at %v of %d", ErrInvalid, name, size, e.Offsets, data.Size())
		}
		left -= size
		h := blake3.New(32, nil)
		if _, err := io.CopyBuffer(h, interruptible{ctx, io.NewSectionReader(data, e.Offsets[0], size)}, piece); err != nil {
			return nil, 0, err
		}
		tensors = append(tensors, TensorEntry{Name: name, DType: e.DType, Shape: e.Shape, Hash: [32]byte(h.Sum(nil))})
	}
	if left != 0 {
		return nil, 0, fmt.Errorf("%w: %d bytes belong to no tensor", ErrInvalid, left)
	}
	return tensors, step, nil
}

// readHeader returns the entries of a header by their names, and the data behind it.
func readHeader(file *os.File) (header map[string]json.RawMessage, data *io.SectionReader, err error) {
	info, err := file.Stat()
	if err != nil {
		return nil, nil, err
	}
	var prefix [8]byte
	if !info.Mode().IsRegular() || info.Size() < int64(len(prefix)) {
		return nil, nil, fmt.Errorf("%w: no file of tensors", ErrInvalid)
	}
	if _, err := io.ReadFull(file, prefix[:]); err != nil {
		return nil, nil, err
	}
	rest := info.Size() - int64(len(prefix))
	length := binary.LittleEndian.Uint64(prefix[:])
	if length > safetensors.MaxHeaderSize || length > uint64(rest) {
		return nil, nil, fmt.Errorf("%w: header of %d bytes in a file of %d", ErrInvalid, length, info.Size())
	}
	text := make([]byte, length)
	if _, err := io.ReadFull(file, text); err != nil {
		return nil, nil, err
	}
	if err := json.Unmarshal(text, &header); err != nil {
		return nil, nil, fmt.Errorf("%w: header: %w", ErrInvalid, err)
	}
	return header, io.NewSectionReader(file, int64(len(prefix))+int64(length), rest-int64(length)), nil
}

// interruptible is a reader that fails when its context has ended.
type interruptible struct {
	ctx context.Context
	io.Reader
}

func (r interruptible) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p)
}
