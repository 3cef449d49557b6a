package prepare

import (
	"bytes"
	"context"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/psyche-go/psyche/files/data/parquetfile"
	"github.com/psyche-go/psyche/files/tokenizer"
)

// Samples of the input whose tokens are estimated.
const (
	leastEstimated = 64 << 10 // bytes of a file
	startEstimated = 4 << 10  // bytes at the start of a text file, which show whether it is text
	sampleCount    = 16
	sampleSize     = 64 << 10 // bytes of each
	sampleRows     = 1 << 14  // maximum of each, in a Parquet file
)

// estimate is a low estimate of the tokens of an input. A refusal of tokens that fit would be worse
// than no estimate, so it takes half of the tokens per byte in samples that are spread evenly over
// the input, and counts only input whose size bounds the size of its text from below:
//
//   - text and JSON lines;
//   - compressed text and JSON lines, as if they did not become longer when unpacked;
//   - texts in Parquet files.
//
// It leaves out CSV and JSON arrays, because a line in the middle of such a file may be a part of a
// value, and Arrow files, whose record batches would all have to be read.
type estimate struct {
	o     Options
	parts []stretch
	bytes int64 // of all parts
	exact bool  // every byte of text is a token
}

// stretch is a part of the input: a file, or a row group of a Parquet file.
type stretch struct {
	source
	packed bool
	bytes  int64   // at least as many in its texts or lines
	row    int64   // first row of a row group
	ratio  float64 // tokens per byte, if it has only one sample; -1: not read yet
	sum    float64 // of the ratios of its samples
	binary bool    // a sample is not text, so a run skips the whole file
}

func (o Options) newEstimate(sources []source) *estimate {
	e := &estimate{o: o, exact: bytes.Equal(o.Tokenizer.JSON(), tokenizer.Bytes().JSON())}
	for _, s := range sources {
		next := stretch{source: s, packed: slices.Contains(compressions, path.Ext(strings.ToLower(s.path))), bytes: s.size, ratio: -1}
		switch {
		case s.size < leastEstimated:
		case s.format == formatParquet:
			for _, group := range o.rowGroups(s) {
				e.add(group)
			}
		case s.format == formatText && (next.packed || beginsAsText(s.path)), s.format == formatJSONL:
			e.add(next)
		}
	}
	return e
}

func (e *estimate) add(s stretch) {
	e.parts = append(e.parts, s)
	e.bytes += s.bytes
}

// rowGroups returns the row groups of a Parquet file, or nil if its texts cannot be estimated.
func (o Options) rowGroups(s source) (groups []stretch) {
	file, err := os.Open(s.path)
	if err != nil {
		return nil
	}
	t, err := openParquet(context.Background(), file, o.Field, 0)
	if err != nil {
		_ = file.Close() // it is only read
		return nil
	}
	defer func() { _ = t.Close() }()
	someOf := slices.ContainsFunc(t.leaf.places, func(place int) bool { return place >= 0 })
	if t.leaf.ids || t.leaf.nulls || t.leaf.wrong != nil || someOf {
		return nil
	}
	row := int64(0)
	for _, group := range t.groups {
		minimum, err := t.leastText(group)
		if err != nil {
			return nil
		}
		groups = append(groups, stretch{source: s, bytes: minimum, row: row, ratio: -1})
		row += group.Count
	}
	return groups
}

// leastText returns a low estimate of the bytes of a row group's texts.
func (t *table) leastText(group parquetfile.Group) (minimum int64, err error) {
	defer parquetfile.Recovered(&err)
	return t.parsed.LeastText(group.Number, t.leaf.column)
}

// most returns the bytes of the tokens if every byte were a token.
func (e *estimate) most() uint64 { return max(1, uint64(e.bytes)*uint64(e.o.TokenSize)) }

// tokens returns the estimate. It must be called only once.
func (e *estimate) tokens(ctx context.Context) uint64 {
	for i := range int64(sampleCount) {
		at, part := (2*i+1)*(e.bytes/(2*sampleCount)), 0
		for part < len(e.parts) && at >= e.parts[part].bytes {
			at -= e.parts[part].bytes
			part++
		}
		if part < len(e.parts) {
			e.parts[part].sum += e.ratio(ctx, &e.parts[part], at)
		}
	}
	sum := 0.0
	for _, s := range e.parts {
		if !s.binary {
			sum += s.sum
		}
	}
	return uint64(float64(e.bytes) * sum / sampleCount)
}

// ratio returns a low estimate of the tokens per byte around an offset in a stretch. It is 0 for
// input that cannot be read, which a run may skip.
func (e *estimate) ratio(ctx context.Context, s *stretch, at int64) float64 {
	low := 0.5
	switch {
	case s.ratio >= 0:
	case s.format == formatParquet:
		s.ratio = low * e.o.ratioOfRows(ctx, *s)
	case s.packed:
		s.ratio = low * e.o.ratioIn(*s, 0)
	default:
		if e.exact && s.format == formatText {
			low = 1
		}
		ratio := e.o.ratioIn(*s, max(0, min(at-sampleSize/2, s.size-sampleSize)))
		s.binary = s.binary || s.format == formatText && (ratio == 0 || e.o.ratioIn(*s, s.size-startEstimated) == 0)
		return low * ratio
	}
	return s.ratio
}

// ratioIn returns the tokens per byte of text or of lines from an offset on.
func (o Options) ratioIn(s stretch, at int64) float64 {
	content, err := s.read(at, sampleSize)
	if err != nil || len(content) == 0 {
		return 0
	}
	tokens := 0
	if s.format == formatText {
		tokens = o.count(sample{text: wholeText(content, at > 0)})
	} else {
		for _, line := range wholeLines(content, at > 0) {
			if text, err := textOf(line, o.Field); err == nil {
				tokens += o.count(text)
			}
		}
	}
	return float64(tokens) / float64(len(content))
}

// ratioOfRows returns the tokens per byte of the first texts of a row group.
func (o Options) ratioOfRows(ctx context.Context, s stretch) float64 {
	r, err := o.open(ctx, s.source, s.row)
	if err != nil {
		return 0
	}
	defer func() { _ = r.Close() }() // it is only read
	tokens, read := 0, 0
	for range sampleRows {
		text, err := r.next()
		if err != nil || read >= sampleSize {
			break
		}
		text.text = text.text[:min(len(text.text), sampleSize)]
		read += len(text.text)
		tokens += o.count(sample{text: wholeText(text.text, false)})
	}
	return float64(tokens) / float64(max(1, read))
}

// count returns the number of tokens of a sample, or 0 if it has none.
func (o Options) count(s sample) int {
	if len(s.ids) > 0 {
		return len(s.ids)
	}
	ids, err := o.Tokenizer.Encode(s.text)
	if err != nil {
		return 0
	}
	return len(ids)
}

// read returns at most size bytes of a file from an offset on. If the file is compressed, the offset
// must be 0.
func (s stretch) read(at, size int64) ([]byte, error) {
	file, err := os.Open(s.path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it is only read
	if _, err := file.Seek(at, io.SeekStart); err != nil {
		return nil, err
	}
	from, end := io.Reader(file), func() {}
	if s.packed {
		if from, end, err = unpack(file); err != nil {
			return nil, err
		}
	}
	defer end()
	return io.ReadAll(io.LimitReader(from, size))
}

// wholeText returns a part of a text without the incomplete characters at its end and, inside of a
// file, at its start. It returns nil if the part is not text.
func wholeText(part []byte, inside bool) []byte {
	for cut := 0; inside && cut < utf8.UTFMax-1 && len(part) > 0 && !utf8.RuneStart(part[0]); cut++ {
		part = part[1:]
	}
	for last := len(part) - 1; last >= max(0, len(part)-utf8.UTFMax); last-- {
		if utf8.RuneStart(part[last]) {
			if !utf8.FullRune(part[last:]) {
				part = part[:last]
			}
			break
		}
	}
	if !utf8.Valid(part) || bytes.IndexByte(part, 0) >= 0 {
		return nil
	}
	return part
}

// wholeLines returns the lines of a part of a file that it contains as a whole. inside is true if the
// part does not start at the start of the file.
func wholeLines(part []byte, inside bool) [][]byte {
	lines := bytes.Split(part, []byte("\n"))
	lines = lines[:len(lines)-1]
	if inside && len(lines) > 0 {
		lines = lines[1:]
	}
	return lines
}

// beginsAsText reports whether a file begins as UTF-8 text.
func beginsAsText(name string) bool {
	start, err := stretch{source: source{path: name}}.read(0, startEstimated)
	return err == nil && len(wholeText(start, false)) > 0
}
