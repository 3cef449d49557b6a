package prepare

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/psyche-go/psyche/base/filestart"
)

// Quotes selects what a double quote means in CSV and TSV.
type Quotes string

// Meanings of quotes.
const (
	quotesAuto   Quotes = "auto"   // quotesNone in *.tsv, else quotesDouble
	quotesDouble Quotes = "double" // around a value, as in RFC 4180
	quotesNone   Quotes = "none"   // part of the value
)

// records is a file of comma-separated values, or of tab-separated values (.tsv), whose first line
// names the columns.
type records struct {
	file   *os.File
	end    func()
	limit  *capped
	reader recordReader
	column int
	read   int64 // records after the first line
}

// recordReader returns the values of the next record, or io.EOF. The values are valid until the
// next call.
type recordReader interface {
	Read() ([]string, error)
}

func openRecords(file *os.File, field string, quotes Quotes, position int64) (*records, error) {
	from, end, err := unpack(file)
	if err != nil {
		return nil, err
	}
	r := &records{file: file, end: end, limit: &capped{from: from}}
	r.limit.reset()
	buffer := bufio.NewReaderSize(filestart.Text(r.limit), 1<<20)
	r.reader = newRecordReader(buffer, file.Name(), quotes)
	var columns []string
	if err = checkLines(buffer); err == nil {
		columns, err = r.reader.Read()
	}
	if errors.Is(err, io.EOF) {
		err = errors.New("the file is empty; the first line of a CSV file must name the columns")
	}
	if err == nil {
		r.column, err = columnNamed(columns, field)
	}
	for err == nil && r.read < position {
		r.limit.reset()
		if _, err = r.reader.Read(); err != nil {
			err = fmt.Errorf("resume after record %d: %w", position, err)
		}
		r.read++
	}
	if err != nil {
		end()
		return nil, quoteHint(err)
	}
	return r, nil
}

func newRecordReader(from *bufio.Reader, name string, quotes Quotes) recordReader {
	name = strings.ToLower(name)
	if slices.Contains(compressions, path.Ext(name)) {
		name = strings.TrimSuffix(name, path.Ext(name))
	}
	tabs := path.Ext(name) == ".tsv"
	comma := ','
	if tabs {
		comma = '\t'
	}
	if quotes == quotesNone || quotes != quotesDouble && tabs {
		return &plainRecords{lines: &lines{buffer: from}, comma: string(comma)}
	}
	reader := csv.NewReader(&quotedReturns{from: from})
	reader.ReuseRecord = true
	reader.Comma = comma
	return reader
}

var errLoneCR = errors.New("lines end in CR without LF; convert them to LF, for example with tr '\\r' '\\n'")

var errSeparator = errors.New("the first line names only one column, whose name contains a separator other than a comma (in .tsv, a tab); write the file with commas, or rename it to .tsv if it has tabs")

// checkLines refuses a file whose first line ends in CR alone.
func checkLines(from *bufio.Reader) error {
	start, _ := from.Peek(64 << 10) // the next read returns the error
	if bytes.IndexByte(start, '\n') < 0 && bytes.IndexByte(start, '\r') >= 0 {
		return errLoneCR
	}
	return nil
}

// columnNamed returns the number of a column in the first line.
func columnNamed(columns []string, field string) (int, error) {
	column := slices.Index(columns, field)
	switch {
	case slices.ContainsFunc(columns, func(name string) bool { return strings.Contains(strings.ReplaceAll(name, "\r\n", ""), "\r") }):
		return 0, errLoneCR
	case column < 0 && slices.Contains(columns, `"`+field+`"`):
		return 0, fmt.Errorf("column %q is quoted in the first line; read quotes with --quotes double", field)
	case column < 0 && len(columns) == 1 && strings.ContainsAny(columns[0], ";\t|"):
		return 0, fmt.Errorf("%w%s", errSeparator, among(columns))
	case column < 0:
		return 0, fmt.Errorf("no column %q in the first line; name the text column with --field%s, or read the file as one text with --format text", field, among(columns))
	}
	return column, nil
}

// quoteHint adds a remedy to errors about quotes and about the number of values.
func quoteHint(err error) error {
	if errors.Is(err, csv.ErrBareQuote) || errors.Is(err, csv.ErrQuote) {
		return fmt.Errorf("%w; if quotes are part of the text, use --quotes none", err)
	}
	if errors.Is(err, csv.ErrFieldCount) {
		return fmt.Errorf("%w, want as many as in the first line; put quotes around values with commas, or repair the line", err)
	}
	return err
}

// plainRecords reads lines of values in which quotes are part of the text.
type plainRecords struct {
	lines   *lines
	comma   string
	values  []string
	columns int // in the first line
}

func (p *plainRecords) Read() ([]string, error) {
	for {
		line, err := p.lines.readLine()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			continue
		}
		p.values = p.values[:0]
		for value := range strings.SplitSeq(string(line), p.comma) {
			p.values = append(p.values, value)
		}
		if p.columns == 0 {
			p.columns = len(p.values)
		}
		if len(p.values) != p.columns {
			return nil, fmt.Errorf("line %d has %d values, but the first line names %d columns; if values are quoted, use --quotes double", p.lines.line, len(p.values), p.columns)
		}
		return p.values, nil
	}
}

func (r *records) position() int64 { return r.read }

func (r *records) Close() error {
	r.end()
	return r.file.Close()
}

func (r *records) next() (sample, error) {
	r.limit.reset()
	record, err := r.reader.Read()
	if errors.Is(err, io.EOF) {
		return sample{}, io.EOF
	}
	if err != nil {
		return sample{}, quoteHint(fmt.Errorf("after record %d: %w", r.read, err))
	}
	r.read++
	text := []byte(record[r.column])
	if !utf8.Valid(text) {
		return sample{}, fmt.Errorf("record %d is %w", r.read, errEncoding)
	}
	return sample{text: text}, nil
}
