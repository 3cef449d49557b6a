package local

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"

	"github.com/psyche-go/psyche/assign"
	"github.com/psyche-go/psyche/data/shuffle"
)

// Bounds that keep a wrong number from becoming a huge allocation.
const (
	MaxSeqLen      = 1 << 24
	maxBatchTokens = 1 << 30
)

// extensions are those of token files.
var extensions = []string{".ds", ".bin", ".npy"}

// numpyMagic begins a file that numpy's save wrote.
const numpyMagic = "\x93NUMPY"

// Errors that say what is wrong with a folder or file.
var (
	ErrNoFiles     = errors.New("no token files")
	ErrNumpyHeader = errors.New("file begins with a numpy header")
	ErrOddLength   = errors.New("length of the file is not a whole number of tokens")
	ErrTooShort    = errors.New("file is shorter than one sequence")
	ErrTokenRange  = errors.New("token id is out of range")
)

// Options says how a folder is read.
type Options struct {
	SeqLen    int       // tokens of a sequence, without the one that is only a label
	TokenSize int       // bytes of a token: 2 or 4
	Seed      *[32]byte // of the order of the sequences; nil: the order of the files
	VocabSize int       // token ids must be less; 0: only that they fit an int32
}

func (o Options) check() error {
	if o.SeqLen < 1 || o.SeqLen > MaxSeqLen {
		return fmt.Errorf("sequence length %d, want 1 to %d", o.SeqLen, MaxSeqLen)
	}
	if o.TokenSize != 2 && o.TokenSize != 4 {
		return fmt.Errorf("token size %d bytes, want 2 or 4", o.TokenSize)
	}
	if o.VocabSize < 0 {
		return fmt.Errorf("vocabulary size %d, want at least 0", o.VocabSize)
	}
	return nil
}

// file is one open token file.
type file struct {
	*os.File
	path  string
	first uint64 // index, over all files, of its first sequence
}

// Folder is an open folder of token files. Its methods may be called concurrently.
type Folder struct {
	options     Options
	files       []file
	len         uint64 // sequences
	tokens      uint64 // of all files, with those that no sequence has
	permutation *shuffle.Permutation
}

// Open opens the token files of a folder, or a single token file, and checks their lengths.
func Open(dir string, o Options) (*Folder, error) {
	if err := o.check(); err != nil {
		return nil, fmt.Errorf("open data folder %s: %w", dir, err)
	}
	paths, err := tokenFiles(dir)
	if err != nil {
		return nil, err
	}
	folder := &Folder{options: o}
	for _, path := range paths {
		if err := folder.add(path); err != nil {
			return nil, errors.Join(err, folder.Close())
		}
	}
	if o.Seed != nil {
		folder.permutation = shuffle.New(*o.Seed, folder.len)
	}
	return folder, nil
}

// tokenFiles returns the paths of the token files of a folder, sorted by name, or the
// path itself when it is a file.
func tokenFiles(dir string) ([]string, error) {
	if info, err := os.Stat(dir); err == nil && info.Mode().IsRegular() {
		return []string{dir}, nil
	}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open data folder: %w; make it with: psyche data tokenize --output %s PATH", err, dir)
	}
	if err != nil {
		return nil, fmt.Errorf("open data folder: %w", err)
	}
	var paths []string
	for _, entry := range entries { // sorted by name
		if entry.IsDir() || !slices.Contains(extensions, filepath.Ext(entry.Name())) {
			continue
		}
		paths = append(paths, filepath.Join(dir, entry.Name()))
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("open data folder %s: %w: none of its files ends in .ds, .bin or .npy", dir, ErrNoFiles)
	}
	return paths, nil
}

// add opens a file and counts its sequences.
func (f *Folder) add(path string) error {
	opened, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("open token file: %w", err)
	}
	f.files = append(f.files, file{File: opened, path: path, first: f.len})
	info, err := opened.Stat()
	if err != nil {
		return fmt.Errorf("open token file: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("open token file %s: not a regular file", path)
	}
	var start [len(numpyMagic)]byte
	if n, _ := opened.ReadAt(start[:], 0); string(start[:n]) == numpyMagic {
		return fmt.Errorf("open token file %s: %w, which would be read as tokens; write the array with tofile", path, ErrNumpyHeader)
	}
	if info.Size()%int64(f.options.TokenSize) != 0 {
		return fmt.Errorf("open token file %s: %w: %d bytes, tokens have %d; was it cut off, or is the token size wrong?",
			path, ErrOddLength, info.Size(), f.options.TokenSize)
	}
	tokens := uint64(info.Size()) / uint64(f.options.TokenSize)
	if tokens < uint64(f.options.SeqLen)+1 {
		return fmt.Errorf("open token file %s: %w: it has %d tokens, a sequence needs %d; remove it or use shorter sequences",
			path, ErrTooShort, tokens, f.options.SeqLen+1)
	}
	f.tokens += tokens
	f.len += (tokens - 1) / uint64(f.options.SeqLen)
	return nil
}

// Len returns the number of sequences of one pass over the folder.
func (f *Folder) Len() uint64 { return f.len }

// Tokens returns the number of tokens of all files together.
func (f *Folder) Tokens() uint64 { return f.tokens }

// Files returns the paths of the token files in the order in which they are read.
func (f *Folder) Files() []string {
	paths := make([]string, len(f.files))
	for i, file := range f.files {
		paths[i] = file.path
	}
	return paths
}

// Close closes the files.
func (f *Folder) Close() error {
	var errs []error
	for _, file := range f.files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// CheckBatch refuses a batch that is empty or too large to hold in memory.
func CheckBatch(batch assign.BatchID, seqLen int) error {
	if batch.End <= batch.Start {
		return fmt.Errorf("read batch %v: it is empty", batch)
	}
	if most := uint64(maxBatchTokens / (seqLen + 1)); batch.Len() > most {
		return fmt.Errorf("read batch %v: %d sequences, at most %d are read at once", batch, batch.Len(), most)
	}
	return nil
}

// Sequences returns the sequences of a batch in the order of their indices, each of
// Options.SeqLen+1 tokens. Indices at or beyond Len belong to further passes, each with
// an order of its own if there is a seed.
func (f *Folder) Sequences(ctx context.Context, batch assign.BatchID) ([][]int32, error) {
	if err := CheckBatch(batch, f.options.SeqLen); err != nil {
		return nil, err
	}
	sequences := make([][]int32, 0, batch.Len())
	buffer := make([]byte, (f.options.SeqLen+1)*f.options.TokenSize)
	for index := batch.Start; index < batch.End; index++ {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("read batch %v: %w", batch, err)
		}
		sequence, err := f.read(f.stored(index), buffer)
		if err != nil {
			return nil, fmt.Errorf("read batch %v: %w", batch, err)
		}
		sequences = append(sequences, sequence)
	}
	return sequences, nil
}

// stored maps an index of the run to the number of a sequence over all files.
func (f *Folder) stored(index uint64) uint64 {
	if f.permutation == nil {
		return index % f.len
	}
	return f.permutation.At(index)
}

// read reads one sequence through the buffer.
func (f *Folder) read(number uint64, buffer []byte) ([]int32, error) {
	at := sort.Search(len(f.files), func(i int) bool { return f.files[i].first > number }) - 1
	file := f.files[at]
	first := (number - file.first) * uint64(f.options.SeqLen)
	if _, err := file.ReadAt(buffer, int64(first)*int64(f.options.TokenSize)); err != nil {
		return nil, fmt.Errorf("token file %s at token %d: %w; was it changed while in use?", file.path, first, err)
	}
	tokens := make([]int32, f.options.SeqLen+1)
	if bad := decode(tokens, buffer, f.options); bad >= 0 {
		return nil, f.rangeError(file.path, first+uint64(bad), buffer[bad*f.options.TokenSize:])
	}
	return tokens, nil
}

func (f *Folder) rangeError(path string, position uint64, raw []byte) error {
	id := uint32(binary.LittleEndian.Uint16(raw))
	if f.options.TokenSize == 4 {
		id = binary.LittleEndian.Uint32(raw)
	}
	if f.options.VocabSize == 0 {
		return fmt.Errorf("token file %s: %w: token %d is %d, more than an id can be; is the token size wrong?",
			path, ErrTokenRange, position, id)
	}
	return fmt.Errorf("token file %s: %w: token %d is %d, the vocabulary has %d; was it made with another tokenizer, or is the token size wrong?",
		path, ErrTokenRange, position, id, f.options.VocabSize)
}

// decode turns little-endian bytes into token ids and returns the position of the
// first that is out of range, or -1.
func decode(tokens []int32, raw []byte, o Options) int {
	limit := uint32(math.MaxInt32)
	if o.VocabSize > 0 {
		limit = uint32(min(o.VocabSize-1, math.MaxInt32))
	}
	if o.TokenSize == 2 {
		for i := range tokens {
			id := uint32(binary.LittleEndian.Uint16(raw[2*i:]))
			if id > limit {
				return i
			}
			tokens[i] = int32(id)
		}
		return -1
	}
	for i := range tokens {
		id := binary.LittleEndian.Uint32(raw[4*i:])
		if id > limit {
			return i
		}
		tokens[i] = int32(id)
	}
	return -1
}

// CheckTokens reads every token of the folder and returns the largest id. It fails on
// the first token that is out of range.
func (f *Folder) CheckTokens(ctx context.Context) (largest int32, err error) {
	const chunk = 1 << 20
	raw := make([]byte, chunk)
	tokens := make([]int32, chunk/f.options.TokenSize)
	for _, file := range f.files {
		for offset := int64(0); ; offset += chunk {
			if err := ctx.Err(); err != nil {
				return 0, err
			}
			n, err := file.ReadAt(raw, offset)
			count := n / f.options.TokenSize
			if bad := decode(tokens[:count], raw, f.options); bad >= 0 {
				return 0, f.rangeError(file.path, uint64(offset)/uint64(f.options.TokenSize)+uint64(bad), raw[bad*f.options.TokenSize:])
			}
			if count > 0 {
				largest = max(largest, slices.Max(tokens[:count]))
			}
			if n < chunk {
				if err != nil && !errors.Is(err, io.EOF) {
					return 0, fmt.Errorf("token file %s: %w", file.path, err)
				}
				break
			}
		}
	}
	return largest, nil
}
