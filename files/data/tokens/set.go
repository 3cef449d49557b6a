package tokens

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"

	"golang.org/x/sync/errgroup"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data/shuffle"
)

// Limits that prevent a wrong number from causing a huge allocation.
const (
	MaxSeqLen      = 1 << 24
	MaxFiles       = 100_000
	maxBatchTokens = 1 << 30
	maxRead        = 4 << 20 // bytes of one read, unless a sequence is longer
)

// Errors about token files.
var (
	ErrNoFiles     = errors.New("no token files")
	ErrNumpyHeader = errors.New("the file is in numpy format")
	ErrOddLength   = errors.New("length of the file is not a whole number of tokens")
	ErrTooShort    = errors.New("file is shorter than one sequence")
	ErrTokenRange  = errors.New("token id is out of range")

	// ErrChanged means that a file has changed since it was opened.
	ErrChanged = errors.New("the file changed while in use")
)

// File provides the bytes of a token file. Its methods may be called concurrently.
type File interface {
	// Name returns the name of the file for messages.
	Name() string
	// Size returns the length in bytes that the file had when it was opened.
	Size() int64
	// ReadAt fills buffer from an offset. The error wraps ErrChanged if the file has changed since
	// it was opened.
	ReadAt(ctx context.Context, buffer []byte, offset int64) error
}

// Options are the settings for reading token files.
type Options struct {
	SeqLen    int       // tokens of a sequence, without the additional token that is only a label
	TokenSize int       // bytes of a token: 2, 4 or 8
	Seed      *[32]byte // seed of the order of the sequences; nil: the order of the files
	VocabSize int       // token IDs must be less; 0: they must only fit into an int32
	Parallel  int       // maximum number of concurrent reads, at least 1; 0 means 1

	Claim Claim // reliability of TokenSize
}

// Claim is the reliability of a token size when another source contradicts it.
type Claim int

const (
	// OfFiles means that the user or a file in the folder stated the size for these files: the
	// appearance of their content does not matter.
	OfFiles Claim = iota
	// OfLocation means that the run's location states the size: a file that looks like larger
	// tokens is refused.
	OfLocation
	// Presumed means that the run's location has the size, but may not have stated it: a
	// description in the folder has precedence, and without one CheckPresumed must agree.
	Presumed
)

// Check reports the first problem of the options.
func (o Options) Check() error {
	if o.SeqLen < 1 || o.SeqLen > MaxSeqLen {
		return fmt.Errorf("sequence length %d, want 1 to %d", o.SeqLen, MaxSeqLen)
	}
	if o.TokenSize != 2 && o.TokenSize != 4 && o.TokenSize != 8 {
		return fmt.Errorf("token size %d bytes, want 2, 4 or 8", o.TokenSize)
	}
	if o.VocabSize < 0 {
		return fmt.Errorf("vocabulary size %d, want at least 0", o.VocabSize)
	}
	return nil
}

// Set contains the sequences of token files. Its methods may be called concurrently.
type Set struct {
	options     Options
	files       []File
	first       []uint64 // for each file: index, over all files, of its first sequence
	len         uint64   // number of sequences
	tokens      uint64   // in all files, including those in no sequence
	permutation *shuffle.Permutation
}

// New numbers the sequences of files, in the order of the list, and checks the files' lengths.
func New(files []File, o Options) (*Set, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, ErrNoFiles
	}
	if len(files) > MaxFiles {
		return nil, fmt.Errorf("%d token files, the limit is %d", len(files), MaxFiles)
	}
	s := &Set{options: o, files: files}
	for _, file := range files {
		tokens, err := count(file, o)
		if err != nil {
			return nil, fmt.Errorf("open token file %s: %w", file.Name(), err)
		}
		s.first = append(s.first, s.len)
		s.tokens += tokens
		s.len += (tokens - 1) / uint64(o.SeqLen)
	}
	if o.Seed != nil {
		s.permutation = shuffle.New(*o.Seed, s.len)
	}
	return s, nil
}

// count returns the number of tokens of a file.
func count(file File, o Options) (uint64, error) {
	size := file.Size()
	if size < 0 || size%int64(o.TokenSize) != 0 {
		return 0, fmt.Errorf("%w: %d bytes, tokens have %d; get the file again if it is truncated, or correct the token size", ErrOddLength, size, o.TokenSize)
	}
	tokens := uint64(size) / uint64(o.TokenSize)
	if tokens < uint64(o.SeqLen)+1 {
		return 0, fmt.Errorf("%w: %d tokens, but a sequence needs %d; remove the file or use shorter sequences", ErrTooShort, tokens, o.SeqLen+1)
	}
	return tokens, nil
}

// Len returns the number of sequences of one pass over the files.
func (s *Set) Len() uint64 { return s.len }

// Tokens returns the number of tokens of all files together.
func (s *Set) Tokens() uint64 { return s.tokens }

// CheckBatch refuses a batch that is empty or too large to hold in memory.
func CheckBatch(batch assign.BatchID, seqLen int) error {
	if batch.End <= batch.Start {
		return fmt.Errorf("read batch %v: the batch is empty", batch)
	}
	if limit := uint64(maxBatchTokens / (seqLen + 1)); batch.Len() > limit {
		return fmt.Errorf("read batch %v: %d sequences, the limit is %d", batch, batch.Len(), limit)
	}
	return nil
}

// Indices returns the indices of a batch's sequences.
func Indices(batch assign.BatchID) []uint64 {
	indices := make([]uint64, batch.Len())
	for i := range indices {
		indices[i] = batch.Start + uint64(i)
	}
	return indices
}

// Sequences returns the sequences of a batch in the order of their indices, each of
// Options.SeqLen+1 tokens. Indices at or beyond Len belong to further passes, each with its own
// order if there is a seed.
func (s *Set) Sequences(ctx context.Context, batch assign.BatchID) ([][]int32, error) {
	if err := CheckBatch(batch, s.options.SeqLen); err != nil {
		return nil, err
	}
	sequences, err := s.Read(ctx, Indices(batch))
	if err != nil {
		return nil, fmt.Errorf("read batch %v: %w", batch, err)
	}
	return sequences, nil
}

// span is a read of adjacent sequences in one file.
type span struct {
	file  File
	first uint64 // first token in the file
	at    int    // position of its first sequence in the result
	count int    // sequences
}

// Read returns the sequences of the given indices, in their order.
func (s *Set) Read(ctx context.Context, indices []uint64) ([][]int32, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	sequences := make([][]int32, len(indices))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(max(s.options.Parallel, 1))
	for _, part := range s.spans(indices) {
		group.Go(func() error { return s.read(ctx, part, sequences[part.at:part.at+part.count]) })
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return sequences, nil
}

// spans plans the reads: adjacent sequences in a file are read together.
func (s *Set) spans(indices []uint64) []span {
	var spans []span
	for at, index := range indices {
		number := s.stored(index)
		which := s.fileOf(number)
		file, first := s.files[which], (number-s.first[which])*uint64(s.options.SeqLen)
		if last := len(spans) - 1; last >= 0 {
			open := &spans[last]
			next := open.first + uint64(open.count*s.options.SeqLen)
			bytes := (open.count + 1) * s.options.SeqLen * s.options.TokenSize
			if open.file == file && next == first && bytes <= maxRead {
				open.count++
				continue
			}
		}
		spans = append(spans, span{file: file, first: first, at: at, count: 1})
	}
	return spans
}

// Place is the location of a sequence.
type Place struct {
	Pass     uint64 // pass over the files, from 0
	Sequence uint64 // number over all files
	File     string
	Token    uint64 // first token in the file
}

// Place returns the location of the sequence at an index of the run.
func (s *Set) Place(index uint64) Place {
	number := s.stored(index)
	which := s.fileOf(number)
	return Place{index / s.len, number, s.files[which].Name(), (number - s.first[which]) * uint64(s.options.SeqLen)}
}

// fileOf returns the file of a sequence.
func (s *Set) fileOf(number uint64) int {
	return sort.Search(len(s.first), func(i int) bool { return s.first[i] > number }) - 1
}

// stored maps an index of the run to the number of a sequence over all files.
func (s *Set) stored(index uint64) uint64 {
	if s.permutation == nil {
		return index % s.len
	}
	return s.permutation.At(index)
}

func (s *Set) read(ctx context.Context, part span, sequences [][]int32) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	size := s.options.TokenSize
	raw := make([]byte, (part.count*s.options.SeqLen+1)*size)
	if err := part.file.ReadAt(ctx, raw, int64(part.first)*int64(size)); err != nil {
		return fmt.Errorf("token file %s at token %d: %w", part.file.Name(), part.first, err)
	}
	for i := range sequences {
		from := i * s.options.SeqLen
		sequences[i] = make([]int32, s.options.SeqLen+1)
		if bad := decode(sequences[i], raw[from*size:], s.options); bad >= 0 {
			return rangeError(part.file.Name(), part.first+uint64(from+bad), raw[(from+bad)*size:], s.options)
		}
	}
	return nil
}

// CheckTokens reads every token of every file and returns the largest id. It fails on the
// first token that is out of range.
func (s *Set) CheckTokens(ctx context.Context) (largest int32, err error) {
	size := int64(s.options.TokenSize)
	buffer := make([]byte, maxRead)
	tokens := make([]int32, maxRead/size)
	for _, file := range s.files {
		for offset := int64(0); offset < file.Size(); offset += maxRead {
			if err := ctx.Err(); err != nil {
				return 0, err
			}
			raw := buffer[:min(maxRead, file.Size()-offset)]
			if err := file.ReadAt(ctx, raw, offset); err != nil {
				return 0, fmt.Errorf("token file %s at token %d: %w", file.Name(), offset/size, err)
			}
			part := tokens[:int64(len(raw))/size]
			if bad := decode(part, raw, s.options); bad >= 0 {
				return 0, rangeError(file.Name(), uint64(offset/size)+uint64(bad), raw[int64(bad)*size:], s.options)
			}
			largest = max(largest, slices.Max(part))
		}
	}
	return largest, nil
}
