package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"lukechampine.com/blake3"
)

// DigestDir returns the digest of the manifest that a snapshot of the model folder would have. It
// never loads a whole tensor into memory. If the digest equals a known model's, the folder has the
// same files and tensors with the same sizes, so ReadDir needs no more memory than for that model.
// DigestDir omits the other checks of a folder; ReadDir makes them. watch may be nil.
func DigestDir(ctx context.Context, dir string, watch Watch) ([32]byte, error) {
	m, err := manifestOf(ctx, dir, count(dir, watch))
	if err != nil {
		return [32]byte{}, fmt.Errorf("digest of checkpoint %s: %w", dir, err)
	}
	return m.Digest(), nil
}

func manifestOf(ctx context.Context, dir string, counting *counter) (m Manifest, err error) {
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
		tensors, step, err := hashTensors(ctx, path, counting)
		switch {
		case err != nil:
			return m, err
		case i > 0 && step != m.Step:
			return m, fmt.Errorf("%w: the shards have different steps, %d and %d", ErrInvalid, m.Step, step)
		case len(m.Tensors)+len(tensors) > maxTensors:
			return m, fmt.Errorf("%w: more than %d tensors", ErrInvalid, maxTensors)
		}
		m.Step, m.Tensors = step, append(m.Tensors, tensors...)
	}
	slices.SortFunc(m.Tensors, func(a, b TensorEntry) int { return strings.Compare(a.Name, b.Name) })
	return m, m.validate()
}

// tensorFiles returns the names of a folder's tensor files.
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

// pieceSize is the number of bytes of a tensor that are hashed at once.
const pieceSize = 1 << 20

// hashTensors reads a tensor file in pieces. The sizes of the returned tensors add up to the size
// of the file's data.
func hashTensors(ctx context.Context, path string, counting *counter) (tensors []TensorEntry, step uint32, err error) {
	file, err := openTensors(path)
	if err != nil {
		return nil, 0, err
	}
	defer func() { _ = file.Close() }()
	if step, err = parseStep(path, file.Metadata); err != nil {
		return nil, 0, err
	}
	counting.add(file.begin)
	piece := make([]byte, pieceSize)
	for _, e := range file.Tensors {
		h := blake3.New(32, nil)
		if _, err := io.CopyBuffer(h, interruptible{ctx, counting.through(file.data(e))}, piece); err != nil {
			return nil, 0, err
		}
		tensors = append(tensors, TensorEntry{Name: e.Name, DType: e.DType, Shape: e.Shape, Hash: [32]byte(h.Sum(nil))})
	}
	return tensors, step, nil
}

// interruptible is a reader that fails after its context has ended.
type interruptible struct {
	ctx context.Context
	io.Reader
}

func (i interruptible) Read(p []byte) (int, error) {
	if i.ctx.Err() != nil {
		return 0, context.Cause(i.ctx)
	}
	return i.Reader.Read(p)
}
