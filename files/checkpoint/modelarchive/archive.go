package modelarchive

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"lukechampine.com/blake3"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/files/checkpoint"
)

const (
	magic    = "psyche-model-1\n"
	maxFiles = 1 << 12
	hashSize = 32

	// MaxSize is the maximum size of a model archive in bytes. Larger models must come from the Hub
	// or a bucket.
	MaxSize = 16 << 30
)

// errArchive means that bytes are not a model archive.
var errArchive = errors.New("invalid model archive")

// file is one file of a model archive.
type file struct {
	name string
	size int64
	hash [hashSize]byte
}

// Archive is a model archive of a folder. It opens a file only while reading the file.
type Archive struct {
	dir   string
	head  []byte
	files []file
	size  int64

	parameters uint64
}

// Open returns the model archive of a folder. It reads the whole folder once, to check that it is a
// valid model, and to compute the hashes of its files. watch is called with the progress; it may be
// nil.
func Open(ctx context.Context, dir string, watch checkpoint.Watch) (*Archive, error) {
	if _, err := os.Stat(filepath.Join(dir, checkpoint.ConfigFile)); err != nil {
		return nil, fmt.Errorf("%w; a model folder has config.json and model.safetensors", err)
	}
	parameters, err := checkpoint.CheckDir(dir)
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(dir) // in ascending order of names
	if err != nil {
		return nil, err
	}
	entries = slices.DeleteFunc(entries, func(entry os.DirEntry) bool {
		return !checkpoint.IsPart(entry.Name()) || entry.Name() == checkpoint.FactsFile
	})
	p := &Archive{dir: dir, parameters: parameters}
	reading := reader{ctx: ctx, watch: watch}
	for _, entry := range entries {
		if info, err := entry.Info(); err == nil { // otherwise opening it returns the error
			reading.all += info.Size()
		}
	}
	for _, entry := range entries {
		one, err := reading.describe(dir, entry.Name())
		if err != nil {
			return nil, err
		}
		p.files = append(p.files, one)
		p.size += one.size
	}
	p.head = p.appendHead(nil)
	if p.size += int64(len(p.head)); p.size > MaxSize || len(p.files) > maxFiles {
		return nil, fmt.Errorf("%s has %d bytes in %d files, but a run's host serves at most %d bytes in %d files; upload the model to the Hub instead", dir, p.size, len(p.files), int64(MaxSize), maxFiles)
	}
	return p, nil
}

// describe hashes a file.
func (r *reader) describe(dir, name string) (file, error) {
	content, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return file{}, err
	}
	defer func() { _ = content.Close() }()
	hash := blake3.New(hashSize, nil)
	r.Reader = content
	size, err := io.Copy(hash, r)
	if err != nil {
		return file{}, fmt.Errorf("read %s: %w", content.Name(), err)
	}
	return file{name, size, [hashSize]byte(hash.Sum(nil))}, nil
}

// reader reads the files of an archive in turn, reports progress to watch, and fails when ctx ends.
type reader struct {
	io.Reader
	ctx       context.Context
	watch     checkpoint.Watch // may be nil
	done, all int64
}

// Read implements io.Reader.
func (r *reader) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	n, err := r.Reader.Read(b)
	if r.done += int64(n); r.watch != nil {
		r.watch(r.done, r.all)
	}
	return n, err
}

func (a *Archive) appendHead(b []byte) []byte {
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(a.files)))
	for _, f := range a.files {
		b = append(b, byte(len(f.name)))
		b = append(b, f.name...)
		b = binary.LittleEndian.AppendUint64(b, uint64(f.size))
		b = append(b, f.hash[:]...)
	}
	return b
}

// Size returns the size of the model archive in bytes.
func (a *Archive) Size() int64 { return a.size }

// Parameters returns the number of parameters of the model.
func (a *Archive) Parameters() uint64 { return a.parameters }

// ReadAt implements io.ReaderAt.
func (a *Archive) ReadAt(b []byte, offset int64) (n int, err error) {
	start := int64(len(a.head))
	if offset < start {
		n = copy(b, a.head[offset:])
	}
	for _, f := range a.files {
		if at := offset + int64(n); n < len(b) && at >= start && at < start+f.size {
			end := n + int(min(int64(len(b)-n), start+f.size-at))
			if err := a.readFile(f.name, b[n:end], at-start); err != nil {
				return n, err
			}
			n = end
		}
		start += f.size
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

// readFile fills b from an offset of a file.
func (a *Archive) readFile(name string, b []byte, offset int64) error {
	content, err := os.Open(filepath.Join(a.dir, name))
	if err != nil {
		return err
	}
	_, err = content.ReadAt(b, offset)
	return errors.Join(err, content.Close())
}

// Unpack reads a model archive to its end and makes its folder, which appears in one step. The
// error wraps diskspace.ErrTooLittle, before a file is written, if the files do not fit.
func Unpack(r io.Reader, dir string) error { return unpack(r, dir, diskspace.Of) }

func unpack(r io.Reader, dir string, probe diskspace.Probe) error {
	files, err := readHead(r)
	if err != nil {
		return err
	}
	total := uint64(0)
	for _, f := range files {
		total += uint64(f.size)
	}
	if err := diskspace.Check(dir, "the model's files", total, probe); err != nil {
		return err
	}
	err = checkpoint.FillDir(dir, func(temporary string) error {
		for _, f := range files {
			if err := f.write(r, temporary); err != nil {
				return err
			}
		}
		if n, err := io.CopyN(io.Discard, r, 1); n > 0 || !errors.Is(err, io.EOF) {
			return errors.Join(fmt.Errorf("%w: data after the last file", errArchive), err)
		}
		if _, err := checkpoint.CheckDir(temporary); err != nil {
			return fmt.Errorf("%w: %w", errArchive, err)
		}
		return nil
	})
	return diskspace.Explain(err, "nothing was kept; remove other files, and run the command again")
}

// readHead reads the list of files.
func readHead(r io.Reader) ([]file, error) {
	var start [len(magic) + 2]byte
	if _, err := io.ReadFull(r, start[:]); err != nil {
		return nil, err
	}
	count := int(binary.LittleEndian.Uint16(start[len(magic):]))
	if string(start[:len(magic)]) != magic || count > maxFiles {
		return nil, fmt.Errorf("%w: invalid header %q", errArchive, start)
	}
	var files []file
	total := int64(0)
	for range count {
		f, err := readEntry(r)
		if err != nil {
			return nil, err
		}
		if len(files) > 0 && f.name <= files[len(files)-1].name {
			return nil, fmt.Errorf("%w: file %q is not in name order", errArchive, f.name)
		}
		if total += f.size; total > MaxSize {
			return nil, fmt.Errorf("%w: more than %d bytes in total", errArchive, int64(MaxSize))
		}
		files = append(files, f)
	}
	return slices.Clip(files), nil
}

func readEntry(r io.Reader) (f file, err error) {
	var length [1]byte
	if _, err := io.ReadFull(r, length[:]); err != nil {
		return f, err
	}
	rest := make([]byte, int(length[0])+8+hashSize)
	if _, err := io.ReadFull(r, rest); err != nil {
		return f, err
	}
	name, numbers := string(rest[:length[0]]), rest[length[0]:]
	size := binary.LittleEndian.Uint64(numbers)
	if !checkpoint.IsPart(name) || name == checkpoint.FactsFile {
		return f, fmt.Errorf("%w: unexpected file %q", errArchive, name)
	}
	if size > MaxSize {
		return f, fmt.Errorf("%w: file %s is too large: %d bytes", errArchive, name, size)
	}
	return file{name, int64(size), [hashSize]byte(numbers[8:])}, nil
}

// write writes the file to a folder and verifies it.
func (f file) write(r io.Reader, dir string) error {
	made, err := os.OpenFile(filepath.Join(dir, f.name), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	hash := blake3.New(hashSize, nil)
	_, err = io.CopyN(io.MultiWriter(made, hash), r, f.size)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	if err == nil {
		err = made.Sync()
	}
	if err = errors.Join(err, made.Close()); err != nil {
		return fmt.Errorf("get %s: %w", f.name, err)
	}
	if [hashSize]byte(hash.Sum(nil)) != f.hash {
		return fmt.Errorf("%w: %s does not match its hash; the host may have replaced the model; run the command again", errArchive, f.name)
	}
	return nil
}
