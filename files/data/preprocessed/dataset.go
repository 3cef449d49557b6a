package preprocessed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"time"

	"github.com/psyche-go/psyche/files/data/parquetfile"
	"github.com/psyche-go/psyche/files/data/tokens"
	"github.com/psyche-go/psyche/files/data/walk"
)

// IgnoreLabel is the label of a token that is not trained on.
const IgnoreLabel = -100

// ErrInvalid means that a file does not contain valid samples.
var ErrInvalid = errors.New("invalid samples")

// Options defines the limits of samples.
type Options struct {
	SeqLen    int // maximum tokens of a sample
	VocabSize int // token ids must be less; 0: they must only fit an int32
}

// Sample is one row.
type Sample struct {
	Tokens []int32 // 2 to Options.SeqLen
	Labels []int32 // one per token; nil: the column is missing
	// Positions has one position per token, starting with 0 in each text of a packed sample
	// (tokens.TextLengths). It is nil if both this column and sequence_lengths are missing.
	Positions []int32
}

// Dataset contains the samples of a folder. Its methods may be called concurrently.
type Dataset struct {
	options Options
	files   []*file
	groups  []*group
	len     uint64
}

// file is one open file.
type file struct {
	*os.File
	path    string
	size    int64
	changed time.Time
}

// group is one row group of a file.
type group struct {
	file    *file
	parsed  *parquetfile.File
	number  int    // number of the group in the file
	first   uint64 // index, over all files, of its first row
	rows    uint64
	leaves  leaves
	columns columns

	lock    chan struct{} // held during the check
	checked bool          // the check found that all pages have their announced sizes
}

// Open opens the Parquet files of a folder, or one file.
func Open(dir string, o Options) (*Dataset, error) {
	if o.SeqLen < 2 || o.SeqLen > tokens.MaxSeqLen || o.VocabSize < 0 {
		return nil, fmt.Errorf("open samples: sequence length %d, want 2 to %d; vocabulary size %d", o.SeqLen, tokens.MaxSeqLen, o.VocabSize)
	}
	paths, err := parquetFiles(dir)
	if err != nil {
		return nil, err
	}
	d := &Dataset{options: o}
	for _, path := range paths {
		if err := d.add(path); err != nil {
			return nil, errors.Join(fmt.Errorf("open samples %s: %w", path, err), d.Close())
		}
	}
	if d.len == 0 {
		return nil, errors.Join(fmt.Errorf("open samples %s: %w: no rows", dir, ErrInvalid), d.Close())
	}
	return d, nil
}

func parquetFiles(dir string) ([]string, error) {
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("open samples: %w: a data set of the Hugging Face Hub; download it first, then name its folder", err)
	}
	if err != nil {
		return nil, fmt.Errorf("open samples: %w", err)
	}
	if !info.IsDir() {
		return []string{dir}, nil
	}
	paths, err := filepath.Glob(filepath.Join(escape(dir), "*.parquet"))
	if err != nil {
		return nil, fmt.Errorf("open samples: %w", err)
	}
	paths = slices.DeleteFunc(paths, func(path string) bool { return walk.Hidden(filepath.Base(path)) })
	if len(paths) == 0 {
		return nil, fmt.Errorf("open samples %s: %w: no file ends in .parquet", dir, tokens.ErrNoFiles)
	}
	if len(paths) > tokens.MaxFiles {
		return nil, fmt.Errorf("open samples %s: %d files, the limit is %d", dir, len(paths), tokens.MaxFiles)
	}
	slices.SortFunc(paths, tokens.Compare)
	return paths, nil
}

// escape escapes a path so that it is not treated as a pattern.
func escape(path string) string {
	var escaped []rune
	for _, r := range path {
		if slices.Contains([]rune{'*', '?', '[', '\\'}, r) {
			escaped = append(escaped, '\\')
		}
		escaped = append(escaped, r)
	}
	return string(escaped)
}

// add opens a file and finds its row groups.
func (d *Dataset) add(path string) error {
	// Opening a named pipe would wait for a writer.
	if info, err := os.Stat(path); err != nil {
		return err
	} else if !info.Mode().IsRegular() {
		return errors.New("not a regular file")
	}
	opened, err := os.Open(path)
	if err != nil {
		return err
	}
	f := &file{File: opened, path: path}
	d.files = append(d.files, f)
	info, err := opened.Stat()
	if err != nil {
		return err
	}
	f.size, f.changed = info.Size(), info.ModTime()
	return invalid(d.addGroups(f))
}

// invalid turns errors of the packages parquetfile and tokens into ErrInvalid.
func invalid(err error) error {
	if (errors.Is(err, parquetfile.ErrInvalid) || errors.Is(err, tokens.ErrPositions)) && !errors.Is(err, ErrInvalid) {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return err
}

func (d *Dataset) addGroups(f *file) (err error) {
	defer parquetfile.Recovered(&err)
	parsed, err := parquetfile.Open(f.File, f.size)
	if err != nil {
		return err
	}
	leaves, err := findLeaves(parsed.File)
	if err != nil {
		return err
	}
	groups, err := parsed.Groups()
	if err != nil {
		return err
	}
	for _, rows := range groups {
		columns, err := leaves.of(rows)
		for _, column := range leaves.all() {
			if err == nil {
				err = parsed.CheckHeads(rows.Number, column)
			}
		}
		if err != nil {
			return fmt.Errorf("row group %d: %w", rows.Number, err)
		}
		d.groups = append(d.groups, &group{
			file: f, parsed: parsed, number: rows.Number, first: d.len, rows: uint64(rows.Count), leaves: leaves, columns: columns, lock: make(chan struct{}, 1),
		})
		d.len += uint64(rows.Count)
	}
	return nil
}

// Len returns the number of samples of one pass.
func (d *Dataset) Len() uint64 { return d.len }

// Close closes the files.
func (d *Dataset) Close() error {
	var errs []error
	for _, file := range d.files {
		errs = append(errs, file.Close())
	}
	return errors.Join(errs...)
}

// Read returns the samples of the given indices, in their order. Indices at or beyond Len belong to
// further passes, which all have the order of the files.
func (d *Dataset) Read(ctx context.Context, indices []uint64) ([]Sample, error) {
	samples := make([]Sample, len(indices))
	// Rows of one group are read together, in ascending order.
	order := make([]int, len(indices))
	for i := range order {
		order[i] = i
	}
	row := func(i int) uint64 { return indices[i] % d.len }
	slices.SortStableFunc(order, func(a, b int) int { return int(min(1, max(-1, int64(row(a))-int64(row(b))))) })
	for len(order) > 0 {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		which := sort.Search(len(d.groups), func(i int) bool { return d.groups[i].first > row(order[0]) }) - 1
		g := d.groups[which]
		end := 0
		var rows []int64
		for ; end < len(order) && row(order[end]) < g.first+g.rows; end++ {
			rows = append(rows, int64(row(order[end])-g.first))
		}
		read, err := g.read(ctx, rows, d.options)
		if err != nil {
			return nil, fmt.Errorf("samples %s, row %w", g.file.path, err)
		}
		for i, at := range order[:end] {
			samples[at] = read[i]
		}
		order = order[end:]
	}
	return samples, nil
}

// unchanged returns tokens.ErrChanged if the file has changed since it was opened.
func (f *file) unchanged() error {
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if info.Size() != f.size || !info.ModTime().Equal(f.changed) {
		return fmt.Errorf("%w: size was %d bytes, now %d", tokens.ErrChanged, f.size, info.Size())
	}
	return nil
}
