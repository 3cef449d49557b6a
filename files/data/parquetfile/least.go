package parquetfile

import "github.com/parquet-go/parquet-go/format"

// valueBytes is an upper bound of the bytes that a page has for a value in addition to its text:
// its length and its levels.
const valueBytes = 8

// LeastText returns a low estimate of the bytes of all texts of a column in a row group, from the
// footer and the first page header. No encoding stores more than the texts and valueBytes for each
// value. The dictionary does not count, because its texts may be unused.
func (f *File) LeastText(group, column int) (int64, error) {
	c, err := f.chunk(group, column)
	if err != nil || c.bytes.Size() == 0 {
		return 0, err
	}
	first, _, err := c.head(make([]byte, maxHead), 0)
	if err != nil {
		return 0, err
	}
	about := f.Metadata().RowGroups[group].Columns[column].MetaData
	minimum := about.TotalUncompressedSize - valueBytes*min(about.NumValues, about.TotalUncompressedSize)
	if first.Type == format.DictionaryPage {
		minimum -= int64(first.UncompressedPageSize)
	}
	return max(0, minimum), nil
}
