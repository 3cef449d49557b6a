package prepare

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/psyche-go/psyche/base/filestart"
	"github.com/psyche-go/psyche/base/pythonjson"
)

// compressions are the endings of files that are decompressed while they are read.
var compressions = []string{".gz", ".zst", ".lz4", ".br"}

// tables are the endings of files that hold several texts.
var tables = map[string]Format{
	".jsonl": formatJSONL, ".ndjson": formatJSONL, ".json": formatJSON, ".csv": formatCSV, ".tsv": formatCSV, ".parquet": formatParquet,
	".pq": formatParquet, ".parq": formatParquet, ".arrow": formatArrow, ".arrows": formatArrow, ".feather": formatArrow, ".ipc": formatArrow,
}

// HoldsRows reports whether a file holds several texts, by the ending of its name.
func HoldsRows(name string) bool { return formatByName(name) != "" }

// formatByName returns the format of a file that holds several texts, by the ending of its name.
func formatByName(name string) Format {
	name = strings.ToLower(name)
	if ending := path.Ext(name); slices.Contains(compressions, ending) {
		name = strings.TrimSuffix(name, ending)
	}
	return tables[path.Ext(name)]
}

// unread maps endings of files in unsupported formats to a remedy.
var unread = map[string]string{
	".bz2":  "bzip2 is not supported; unpack the file",
	".xz":   "xz is not supported; unpack the file",
	".lzma": "LZMA is not supported; unpack the file",
}

// formatOf returns the format of a file by its name and, for JSON, by its start.
func (o Options) formatOf(file, name string) (Format, error) {
	if o.Format != formatAuto {
		return o.Format, nil
	}
	name = strings.ToLower(name)
	ending := path.Ext(name)
	inner := strings.TrimSuffix(name, ending)
	if why, known := unread[ending]; known {
		if _, table := tables[path.Ext(inner)]; table {
			return "", fmt.Errorf("read text %s: %s, or exclude it with --include", file, why)
		}
		return formatText, nil
	}
	packed := ""
	for _, compression := range compressions {
		if ending == compression {
			packed, ending = compression, path.Ext(inner)
		}
	}
	switch format := tables[ending]; {
	case format == "":
		return formatByContent(file)
	case (format == formatParquet || format == formatArrow) && packed != "":
		return "", fmt.Errorf("read text %s: a compressed Parquet or Arrow file is not supported; unpack it, or exclude it with --include", file)
	case format != formatJSON:
		return format, nil
	}
	format, err := formatOfJSON(file, o.fieldGiven)
	if err != nil {
		return "", fmt.Errorf("read text %s: %w", file, err)
	}
	return format, nil
}

// formatByContent returns formatParquet or formatArrow for a file with the start and the end of
// this format, whatever its name is, such as pandas' data.parquet.gzip. Otherwise it returns
// formatText.
func formatByContent(name string) (Format, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", fmt.Errorf("read text: %w", err)
	}
	defer func() { _ = file.Close() }() // it is only read
	info, err := file.Stat()
	if err != nil {
		return "", fmt.Errorf("read text: %w", err)
	}
	var start, end [6]byte
	if info.Size() < 12 {
		return formatText, nil
	}
	_, startErr := file.ReadAt(start[:], 0)
	_, endErr := file.ReadAt(end[:], info.Size()-int64(len(end)))
	switch err := errors.Join(startErr, endErr); {
	case err != nil:
		return "", fmt.Errorf("read text %s: %w", name, err)
	case string(start[:4]) == "PAR1" && string(end[2:]) == "PAR1":
		return formatParquet, nil
	case string(start[:]) == "ARROW1" && string(end[:]) == "ARROW1",
		string(start[:4]) == "\xff\xff\xff\xff" && string(end[2:]) == "\x00\x00\x00\x00": // a stream ends with an empty message
		return formatArrow, nil
	}
	return formatText, nil
}

// formatOfJSON returns formatJSON for an array of objects, formatJSONL for objects with one line
// each, and formatJSON for other sequences of objects. Other text is formatText, because a single
// object may be a setting or a part of a program. But if the user named a field, other text is
// formatJSON: reading it fails unless it is an object with this field.
func formatOfJSON(name string, fieldGiven bool) (Format, error) {
	other := formatText
	if fieldGiven {
		other = formatJSON
	}
	switch found, err := lookAtJSON(name); {
	case err != nil:
		return "", err
	case found.array || found.several && found.lines:
		return formatJSON, nil
	case found.several:
		return formatJSONL, nil
	}
	return other, nil
}

// jsonContent describes the start of a file.
type jsonContent struct {
	array   bool // an array of objects
	several bool // objects, one after the other
	lines   bool // an object is not alone on one line
}

// lookAtJSON examines the start of a file.
func lookAtJSON(name string) (found jsonContent, err error) {
	file, err := os.Open(name)
	if err != nil {
		return found, err
	}
	defer func() { _ = file.Close() }() // it is only read
	from, unpacked, err := unpack(file)
	if err != nil {
		return found, err
	}
	defer unpacked()
	buffer := bufio.NewReader(filestart.Text(io.LimitReader(from, maxDocument)))
	switch firstByte(buffer) {
	case '[':
		_, _ = buffer.Discard(1)
		found.array = firstByte(buffer) == '{'
		return found, nil
	case '{':
	default:
		return found, nil
	}
	decoder := json.NewDecoder(pythonjson.Reader(buffer))
	var value json.RawMessage
	for i := range 2 {
		if decoder.Decode(&value) != nil || value[0] != '{' {
			return found, nil
		}
		next, _ := io.ReadAll(io.LimitReader(decoder.Buffered(), 2)) // it is in memory
		alone := len(next) > 0 && (next[0] == '\n' || string(next) == "\r\n")
		found.lines = found.lines || bytes.IndexByte(value, '\n') >= 0 || i == 0 && !alone
	}
	found.several = true
	return found, nil
}
