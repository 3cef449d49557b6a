package preprocessed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/psyche-go/psyche/files/data/parquetfile"
	"github.com/psyche-go/psyche/files/data/tokens"
)

// leaves are the numbers of the columns to read; -1 means that the column is missing.
type leaves struct {
	inputs, labels, positions, lengths int
	masks                              [len(maskNames)]int
}

// noMasks are the numbers of missing masks.
var noMasks = [len(maskNames)]int{-1, -1, -1, -1, -1}

// all returns the numbers of the existing columns.
func (l leaves) all() []int {
	return slices.DeleteFunc(append([]int{l.inputs, l.labels, l.positions, l.lengths}, l.masks[:]...), func(number int) bool { return number < 0 })
}

// findLeaves finds the columns by their names.
func findLeaves(file *parquet.File) (leaves, error) {
	found := leaves{-1, -1, -1, -1, noMasks}
	for _, column := range file.Root().Columns() {
		var at *int
		switch column.Name() {
		case "inputs", "input_ids":
			at = &found.inputs
		case "labels":
			at = &found.labels
		case "position_ids":
			at = &found.positions
		case "sequence_lengths":
			at = &found.lengths
		default:
			mask := slices.Index(maskNames[:], column.Name())
			if mask < 0 {
				continue
			}
			at = &found.masks[mask]
		}
		name := column.Name()
		if *at >= 0 {
			return leaves{}, fmt.Errorf("%w: column %s occurs twice", ErrInvalid, name)
		}
		for !column.Leaf() {
			if len(column.Columns()) != 1 {
				return leaves{}, fmt.Errorf("%w: column %s is not a list of integers", ErrInvalid, name)
			}
			column = column.Columns()[0]
		}
		if parquetfile.OnlyNulls(column) && at != &found.inputs { // pyarrow writes it for a column without values
			continue
		}
		truth := column.Type().Kind() == parquet.Boolean && slices.Contains(maskNames[:], name)
		if kind := column.Type().Kind(); kind != parquet.Int32 && kind != parquet.Int64 && !truth || column.MaxRepetitionLevel() != 1 {
			return leaves{}, fmt.Errorf("%w: column %s is not a list of integers", ErrInvalid, name)
		}
		*at = column.Index()
	}
	if found.inputs < 0 {
		return leaves{}, fmt.Errorf("%w: no column inputs or input_ids", ErrInvalid)
	}
	return found, nil
}

// filled returns the definition level of list elements in a column. Empty lists and null lists have
// lower levels.
func filled(file *parquet.File, number int) int {
	var level int
	var search func(column *parquet.Column, inside int)
	search = func(column *parquet.Column, inside int) {
		if column.Repeated() {
			inside = column.MaxDefinitionLevel()
		}
		if column.Leaf() && column.Index() == number {
			level = inside
		}
		for _, inner := range column.Columns() {
			search(inner, inside)
		}
	}
	search(file.Root(), 0)
	return level
}

// columns are the columns of one row group; nil means that the column is missing.
type columns struct {
	inputs, labels, positions, lengths parquet.ColumnChunk
	masks                              [len(maskNames)]parquet.ColumnChunk
}

func (l leaves) of(rows parquet.RowGroup) (columns, error) {
	chunks := rows.ColumnChunks()
	take := func(number int) parquet.ColumnChunk {
		if number < 0 || number >= len(chunks) {
			return nil
		}
		return chunks[number]
	}
	c := columns{inputs: take(l.inputs), labels: take(l.labels), positions: take(l.positions), lengths: take(l.lengths)}
	for i, number := range l.masks {
		c.masks[i] = take(number)
	}
	if c.inputs == nil {
		return c, fmt.Errorf("%w: column inputs is missing", ErrInvalid)
	}
	return c, nil
}

// read returns the samples of rows in ascending order. Its errors begin with the row.
func (g *group) read(ctx context.Context, rows []int64, o Options) ([]Sample, error) {
	err := g.check(ctx)
	var samples []Sample
	if err == nil {
		samples, err = g.decode(ctx, rows, o)
	}
	if changed := g.file.unchanged(); changed != nil {
		return nil, fmt.Errorf("%d: %w", rows[0], changed)
	}
	if errors.Is(err, parquetfile.ErrInvalid) || err != nil && !g.checked {
		return nil, fmt.Errorf("%d: %w", rows[0], invalid(err))
	}
	return samples, err
}

// check decompresses all pages of the columns to read, before the first page is read.
func (g *group) check(ctx context.Context) (err error) {
	select {
	case g.lock <- struct{}{}:
		defer func() { <-g.lock }()
	case <-ctx.Done():
		return ctx.Err()
	}
	defer parquetfile.Recovered(&err)
	if g.checked {
		return nil
	}
	for _, column := range g.leaves.all() {
		if err := g.parsed.CheckPages(ctx, g.number, column); err != nil {
			return fmt.Errorf("row group %d: %w", g.number, err)
		}
	}
	g.checked = true
	return nil
}

func (g *group) decode(ctx context.Context, rows []int64, o Options) (samples []Sample, err error) {
	defer parquetfile.Recovered(&err)
	var lists [4 + len(maskNames)][][]int32 // of each column, one list per row; nil for a null, and if the column is missing
	for i, chunk := range append([]parquet.ColumnChunk{g.columns.inputs, g.columns.labels, g.columns.positions, g.columns.lengths}, g.columns.masks[:]...) {
		if lists[i] = make([][]int32, len(rows)); chunk == nil {
			continue
		}
		c := collector{rows: rows, row: rows[0] - 1, limit: o.SeqLen, lists: lists[i], filled: filled(g.parsed.File, chunk.Column())}
		if err := c.read(ctx, chunk); err != nil {
			return nil, err
		}
	}
	samples = make([]Sample, len(rows))
	for i := range samples {
		s := Sample{Tokens: lists[0][i], Labels: lists[1][i], Positions: lists[2][i]}
		var by masks
		for j := range by {
			by[j] = lists[4+j][i]
		}
		if err := s.complete(g.leaves, lists[3][i], by, o); err != nil {
			return nil, fmt.Errorf("%d: %w", rows[i], invalid(err))
		}
		samples[i] = s
	}
	return samples, nil
}

// complete checks a sample, and applies its text lengths and masks.
func (s *Sample) complete(in leaves, lengths []int32, by masks, o Options) (err error) {
	if err := s.check(o); err != nil {
		return err
	}
	made := false
	if in.masks != noMasks {
		if made, err = s.mask(by); err != nil {
			return err
		}
	}
	if lengths != nil {
		err = s.unpack(lengths)
	} else if s.Positions != nil {
		_, err = tokens.TextLengths(s.Positions)
	}
	if err == nil && in.masks[attention] >= 0 {
		err = s.separate(by[attention])
	}
	for i, position := range s.Positions {
		if made && position == 0 {
			s.Labels[i] = IgnoreLabel // the end of a text does not predict the next text
		}
	}
	return err
}

// check reports errors of a sample, except errors in the order of its positions.
func (s Sample) check(o Options) error {
	n := len(s.Tokens)
	if n < 2 {
		return fmt.Errorf("%w: %d tokens, want at least 2", ErrInvalid, n)
	}
	if s.Labels != nil && len(s.Labels) != n {
		return fmt.Errorf("%w: %d labels for %d tokens", ErrInvalid, len(s.Labels), n)
	}
	if s.Positions != nil && len(s.Positions) != n {
		return fmt.Errorf("%w: %d position_ids for %d tokens", ErrInvalid, len(s.Positions), n)
	}
	limit := int32(math.MaxInt32)
	if o.VocabSize > 0 && o.VocabSize < math.MaxInt32 {
		limit = int32(o.VocabSize)
	}
	for i, token := range s.Tokens {
		if token < 0 || token >= limit {
			return fmt.Errorf("%w: token %d has id %d, the vocabulary has %d", tokens.ErrTokenRange, i, token, limit)
		}
	}
	for i, label := range s.Labels {
		if label != IgnoreLabel && (label < 0 || label >= limit) {
			return fmt.Errorf("%w: label %d is %d, want %d or an id below the vocabulary size, %d", tokens.ErrTokenRange, i, label, IgnoreLabel, limit)
		}
	}
	for i, position := range s.Positions {
		if position < 0 || int(position) >= o.SeqLen {
			return fmt.Errorf("%w: position %d is %d, want less than %d", ErrInvalid, i, position, o.SeqLen)
		}
	}
	return nil
}

// unpack sets the positions of the texts in a sample from their lengths. A text from which nothing
// is learned is padding, with arbitrary positions. Everything after the last text must be padding.
func (s *Sample) unpack(lengths []int32) error {
	var texts []int
	first := 0
	for i, length := range lengths {
		if length < 1 || int(length) > len(s.Tokens)-first {
			return fmt.Errorf("%w: sequence_lengths %d is %d, after %d of %d tokens", ErrInvalid, i, length, first, len(s.Tokens))
		}
		if err := s.counts(first, first+int(length)); err != nil {
			return err
		}
		texts = append(texts, int(length))
		first += int(length)
	}
	if rest := len(s.Tokens) - first; rest > 0 {
		if !s.padding(first, len(s.Tokens)) {
			return fmt.Errorf("%w: sequence_lengths cover %d of %d tokens, and some labels of the other tokens are not %d", ErrInvalid, first, len(s.Tokens), IgnoreLabel)
		}
		texts = append(texts, rest)
	}
	s.Positions = tokens.PackedPositions(texts)
	return nil
}

// counts returns an error unless the positions from first to end are the positions of one text, or
// of padding.
func (s *Sample) counts(first, end int) error {
	if s.Positions == nil || s.padding(first, end) {
		return nil
	}
	for i, position := range s.Positions[first:end] {
		if int(position) != i {
			return fmt.Errorf("%w: position_ids %d is %d, but sequence_lengths has a text of %d tokens from position %d", ErrInvalid, first+i, position, end-first, first)
		}
	}
	return nil
}

// padding reports whether no token from first to end is learned.
func (s *Sample) padding(first, end int) bool {
	return s.Labels != nil && !slices.ContainsFunc(s.Labels[first:end], func(label int32) bool { return label != IgnoreLabel })
}

// read reads the lists of its rows. Its errors begin with the row.
func (c *collector) read(ctx context.Context, chunk parquet.ColumnChunk) (err error) {
	pages := chunk.Pages()
	defer func() { err = errors.Join(err, pages.Close()) }()
	if err := pages.SeekToRow(c.rows[0]); err != nil {
		return fmt.Errorf("%d: %w: %w", c.rows[0], ErrInvalid, err)
	}
	for c.next < len(c.rows) {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%d: %w", c.row, err)
		}
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%d: %w: %w", max(c.row, c.rows[0]), ErrInvalid, err)
		}
		err = c.page(page)
		parquet.Release(page)
		if err != nil {
			return err
		}
	}
	return c.end()
}

// collector collects the lists of the given rows, in ascending order, from a stream of values.
type collector struct {
	rows   []int64
	filled int   // definition level of elements
	next   int   // index in rows of the first incomplete row
	row    int64 // current row of the stream
	list   []int32
	limit  int
	lists  [][]int32
}

func (c *collector) page(page parquet.Page) error {
	values := page.Values()
	buffer := make([]parquet.Value, 1024)
	for c.next < len(c.rows) {
		n, err := values.ReadValues(buffer)
		for _, value := range buffer[:n] {
			if err := c.value(value); err != nil {
				return fmt.Errorf("%d: %w", c.row, err)
			}
		}
		if errors.Is(err, io.EOF) || err == nil && n == 0 {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%d: %w: %w", c.row, ErrInvalid, err)
		}
	}
	return nil
}

func (c *collector) value(value parquet.Value) error {
	if value.RepetitionLevel() == 0 {
		c.complete()
		c.row++
	} else if c.row < c.rows[0] {
		return fmt.Errorf("%w: the first value continues a list", ErrInvalid)
	}
	if c.next == len(c.rows) || c.row != c.rows[c.next] {
		return nil
	}
	switch level := value.DefinitionLevel(); {
	case value.IsNull() && level >= c.filled:
		return fmt.Errorf("%w: null in a list", ErrInvalid)
	case value.IsNull() && level == c.filled-1:
		c.list = []int32{}
		return nil
	case value.IsNull(): // null list
		return nil
	}
	if len(c.list) == c.limit {
		return fmt.Errorf("%w: more than max_seq_len = %d tokens", ErrInvalid, c.limit)
	}
	number := int64(0)
	switch value.Kind() {
	case parquet.Int32:
		number = int64(value.Int32())
	case parquet.Int64:
		number = value.Int64()
	case parquet.Boolean:
		if value.Boolean() {
			number = 1
		}
	default:
		return fmt.Errorf("%w: value is not an integer", ErrInvalid)
	}
	if number < math.MinInt32 || number > math.MaxInt32 {
		return fmt.Errorf("%w: %d", tokens.ErrTokenRange, number)
	}
	c.list = append(c.list, int32(number))
	return nil
}

// complete ends the list of the current row.
func (c *collector) complete() {
	for c.next < len(c.rows) && c.rows[c.next] == c.row {
		c.lists[c.next] = c.list
		c.next++
	}
	c.list = nil
}

func (c *collector) end() error {
	c.complete()
	if c.next < len(c.rows) {
		return fmt.Errorf("%d: %w: the column ends earlier", c.rows[c.next], ErrInvalid)
	}
	return nil
}
