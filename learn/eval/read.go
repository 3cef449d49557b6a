package eval

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/psyche-go/psyche/base/filestart"
	"github.com/psyche-go/psyche/base/pythonjson"
	"github.com/psyche-go/psyche/base/strictjson"
	"github.com/psyche-go/psyche/files/data/parquetfile"
)

// Limits of a split.
const (
	maxRows  = 1 << 20
	maxBytes = 1 << 30 // of all texts
	maxLine  = 16 << 20
)

// split accumulates the rows of a split's files.
type split struct {
	columns []string
	limit   int // maximum number of rows
	rows    []map[string]any
	bytes   int
}

// readSplit reads the columns of the first rows of files, in their order.
func readSplit(ctx context.Context, paths, columns []string, limit int) ([]map[string]any, error) {
	s := split{columns: columns, limit: limit}
	for _, path := range paths {
		if err := s.readFile(ctx, path); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	return s.rows, nil
}

func (s *split) readFile(ctx context.Context, path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	if filepath.Ext(path) == ".parquet" {
		return s.readParquet(ctx, file)
	}
	return s.readLines(ctx, file)
}

func (s *split) full() bool { return len(s.rows) >= s.limit }

func (s *split) add(row map[string]any) error {
	if len(s.rows) >= maxRows {
		return fmt.Errorf("%w: more than %d rows", ErrDocument, maxRows)
	}
	for _, value := range row {
		s.bytes += weight(value)
	}
	if s.bytes > maxBytes {
		return fmt.Errorf("%w: more than %d bytes of text", ErrDocument, maxBytes)
	}
	s.rows = append(s.rows, row)
	return nil
}

func weight(value any) int {
	switch v := value.(type) {
	case string:
		return len(v) + 16
	case []any:
		sum := 24
		for _, element := range v {
			sum += weight(element)
		}
		return sum
	}
	return 16
}

// readLines reads a JSON object from every line.
func (s *split) readLines(ctx context.Context, from io.Reader) error {
	lines := bufio.NewScanner(filestart.Text(from))
	lines.Buffer(make([]byte, 64<<10), maxLine)
	for number := 1; !s.full() && lines.Scan(); number++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		if len(strings.TrimSpace(lines.Text())) == 0 {
			continue
		}
		object, err := objectOf(lines.Bytes())
		if err != nil {
			return fmt.Errorf("%w: line %d: %w", ErrDocument, number, err)
		}
		row := map[string]any{}
		for _, column := range s.columns {
			row[column] = number64(lookup(object, column))
		}
		if err := s.add(row); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("%w: lines: %w", ErrDocument, err)
	}
	return nil
}

// objectOf parses a line with one JSON object. It refuses bytes and escapes that Go would read as
// U+FFFD.
func objectOf(line []byte) (object map[string]any, err error) {
	if err := strictjson.CheckEscapes(line); err != nil {
		return nil, fmt.Errorf("%w; convert it to UTF-8, or repair it", err)
	}
	decoder := json.NewDecoder(bytes.NewReader(pythonjson.Standard(line)))
	decoder.UseNumber()
	if err := decoder.Decode(&object); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return nil, fmt.Errorf("want a JSON object, not %s", wrong.Value)
		}
		return nil, fmt.Errorf("want a JSON object: %w", err)
	}
	if object == nil {
		return nil, errors.New("want a JSON object, not null")
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("line continues after its JSON object; write each object on its own line")
	}
	return object, nil
}

// lookup returns the value at a path.
func lookup(object map[string]any, path string) any {
	first, rest, nested := strings.Cut(path, ".")
	if !nested {
		return object[first]
	}
	inner, _ := object[first].(map[string]any)
	return lookup(inner, rest)
}

// number64 converts JSON numbers to int64 or float64.
func number64(value any) any {
	switch v := value.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case []any:
		for i := range v {
			v[i] = number64(v[i])
		}
	}
	return value
}

// readParquet reads columns of a table, one after the other in every row group.
func (s *split) readParquet(ctx context.Context, file *os.File) (err error) {
	defer parquetfile.Recovered(&err)
	info, err := file.Stat()
	if err != nil {
		return err
	}
	opened, err := parquetfile.Open(file, info.Size())
	if err != nil {
		return err
	}
	var leaves []parquet.LeafColumn
	for _, name := range s.columns {
		leaf, err := find(opened.Schema(), name)
		if err != nil {
			return err
		}
		leaves = append(leaves, leaf)
	}
	groups, err := opened.Groups()
	if err != nil {
		return err
	}
	for _, group := range groups {
		if s.full() {
			return nil
		}
		rows := min(group.Count, int64(s.limit-len(s.rows)))
		if rows > maxRows {
			return fmt.Errorf("%w: row group %d has %d rows, the limit is %d", ErrDocument, group.Number, rows, maxRows)
		}
		table := make([]map[string]any, rows)
		for i := range table {
			table[i] = make(map[string]any, len(leaves))
		}
		for i, leaf := range leaves {
			if parquetfile.OnlyNulls(leaf.Node) {
				continue // a missing value is null
			}
			if err := opened.CheckPages(ctx, group.Number, leaf.ColumnIndex); err != nil {
				return fmt.Errorf("row group %d: %w", group.Number, err)
			}
			if err := s.readColumn(group.ColumnChunks()[leaf.ColumnIndex], leaf, table, s.columns[i]); err != nil {
				return fmt.Errorf("row group %d, column %s: %w", group.Number, s.columns[i], err)
			}
		}
		for _, row := range table {
			if err := s.add(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// find returns the column with a name: the column itself, or the elements if it is a list.
func find(schema *parquet.Schema, name string) (parquet.LeafColumn, error) {
	path := strings.Split(name, ".")
	for _, within := range [][]string{nil, {"list", "element"}, {"list", "item"}} {
		leaf, found := schema.Lookup(append(path[:len(path):len(path)], within...)...)
		if found && leaf.Node.Leaf() && leaf.MaxRepetitionLevel <= 1 {
			return leaf, nil
		}
	}
	for end := 1; end < len(path); end++ { // objects that are all null have no columns inside
		if leaf, found := schema.Lookup(path[:end]...); found && leaf.Node.Leaf() && parquetfile.OnlyNulls(leaf.Node) {
			return leaf, nil
		}
	}
	return parquet.LeafColumn{}, fmt.Errorf("%w: no column %s with values or lists of values", ErrDocument, name)
}

// readColumn stores the values of a column in the rows.
func (s *split) readColumn(chunk parquet.ColumnChunk, leaf parquet.LeafColumn, table []map[string]any, name string) (err error) {
	pages := chunk.Pages()
	defer func() { err = errors.Join(err, pages.Close()) }()
	row, size := -1, 0
	var buffer [256]parquet.Value
	for {
		page, err := pages.ReadPage()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		for values, end := page.Values(), false; !end; {
			n, err := values.ReadValues(buffer[:])
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			end = err != nil
			for _, v := range buffer[:n] {
				if v.RepetitionLevel() == 0 {
					row++
				}
				if row >= len(table) {
					return nil
				}
				if size += weight(put(table[row], name, v, leaf.MaxRepetitionLevel > 0)); size+s.bytes > maxBytes {
					return fmt.Errorf("%w: more than %d bytes of text", ErrDocument, maxBytes)
				}
			}
		}
		parquet.Release(page)
	}
	if row+1 < len(table) {
		return fmt.Errorf("%w: %d rows, want %d", ErrDocument, row+1, len(table))
	}
	return nil
}

// put adds a value to a row and returns it. A list without elements is represented by a null.
func put(row map[string]any, name string, v parquet.Value, list bool) any {
	var value any
	switch {
	case v.IsNull():
	case v.Kind() == parquet.ByteArray:
		value = string(v.ByteArray())
	case v.Kind() == parquet.Boolean:
		value = v.Boolean()
	case v.Kind() == parquet.Int32:
		value = int64(v.Int32())
	case v.Kind() == parquet.Int64:
		value = v.Int64()
	case v.Kind() == parquet.Double:
		value = v.Double()
	}
	if !list {
		row[name] = value
		return value
	}
	if v.RepetitionLevel() == 0 {
		row[name] = []any{}
	}
	if value != nil {
		row[name] = append(row[name].([]any), value)
	}
	return value
}
