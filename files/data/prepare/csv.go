package prepare

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"unicode/utf8"
)

// records is a file of comma-separated values, or of values with tabs between them (.tsv),
// whose first line names the columns.
type records struct {
	file   *os.File
	end    func()
	limit  *capped
	reader *csv.Reader
	column int
	read   int64 // records, without the first line
}

func openRecords(file *os.File, field string, position int64) (*records, error) {
	from, end, err := unpack(file)
	if err != nil {
		return nil, err
	}
	r := &records{file: file, end: end, limit: &capped{from: from}}
	r.limit.reset()
	r.reader = csv.NewReader(&withoutMark{from: r.limit})
	r.reader.ReuseRecord = true
	name := strings.ToLower(file.Name())
	if slices.Contains(compressions, path.Ext(name)) {
		name = strings.TrimSuffix(name, path.Ext(name))
	}
	if path.Ext(name) == ".tsv" {
		r.reader.Comma = '\t'
	}
	columns, err := r.reader.Read()
	if errors.Is(err, io.EOF) {
		err = errors.New("it is empty, the first line of CSV names the columns")
	}
	if err == nil {
		if r.column = slices.Index(columns, field); r.column < 0 {
			err = fmt.Errorf("no column %q in its first line; name the column of the text with --field, or read the file as one text with --format text", field)
		}
	}
	for err == nil && r.read < position {
		r.limit.reset()
		if _, err = r.reader.Read(); err != nil {
			err = fmt.Errorf("go on after record %d: %w", position, err)
		}
		r.read++
	}
	if err != nil {
		end()
		return nil, err
	}
	return r, nil
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
		return sample{}, fmt.Errorf("after record %d: %w", r.read, err)
	}
	r.read++
	text := []byte(record[r.column])
	if !utf8.Valid(text) {
		return sample{}, fmt.Errorf("record %d is not UTF-8", r.read)
	}
	return sample{text: text}, nil
}
