package prepare

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf16"
)

// Encodings of a text.
func utf16LE(text string) string { return inUTF16(text, binary.LittleEndian) }
func utf16BE(text string) string { return inUTF16(text, binary.BigEndian) }

func inUTF16(text string, order binary.AppendByteOrder) string {
	var out []byte
	for _, unit := range utf16.Encode([]rune(text)) {
		out = order.AppendUint16(out, unit)
	}
	return string(out)
}

// TestUTF16 reads text and tables in UTF-16 with a byte order mark, as Excel and PowerShell write
// it, in each format. The texts equal the texts of Python's open and pandas.read_csv with
// encoding="utf-16".
func TestUTF16(t *testing.T) {
	const csv, lines, array = "text,id\nalpha,1\n\"béta, 🙂\",2\n", "{\"text\":\"alpha\"}\r\n{\"text\":\"béta, 🙂\"}\r\n", `[{"text":"alpha"},{"text":"béta, 🙂"}]`
	for _, test := range []struct{ name, content, want string }{
		{"a.csv", csv, "alpha|béta, 🙂|"},
		{"a.csv.gz", csv, "alpha|béta, 🙂|"},
		{"a.tsv", "text\tid\r\nalpha\t1\r\nbé\"ta\t2\r\n", "alpha|bé\"ta|"},
		{"a.jsonl", lines, "alpha|béta, 🙂|"},
		{"a.ndjson", lines, "alpha|béta, 🙂|"},
		{"lines.json", lines, "alpha|béta, 🙂|"},
		{"array.json", array, "alpha|béta, 🙂|"},
		{"array.json.gz", array, "alpha|béta, 🙂|"},
		{"one.json", `{"text":"é"}`, `{"text":"é"}|`},
		{"a.txt", "alpha 🙂\r\n", "alpha 🙂\r\n|"},
		{"a.txt.gz", "alpha", "alpha|"},
		{"README", "日本", "日本|"},
	} {
		for order, encode := range map[string]func(string) string{"LE": utf16LE, "BE": utf16BE} {
			content := encode("\ufeff" + test.content)
			if strings.HasSuffix(test.name, ".gz") {
				content = packGzip(t, content)
			}
			if got, err := madeOf(t, test.name, content, func(*Options) {}); err != nil || got != test.want {
				t.Errorf("%s, %s: %q, %v; want %q", test.name, order, got, err, test.want)
			}
		}
	}
	provided, err := os.ReadFile(filepath.Join("testdata", "outside", "excel-utf-16.csv"))
	if err != nil {
		t.Fatal(err)
	}
	try(t, "a.csv", string(provided), "alpha|", func(*Options) {})
}

// TestOtherEncodings checks that errors name unsupported encodings, compressed files and pointers.
func TestOtherEncodings(t *testing.T) {
	const csv, lines, text = "text,id\nalpha,1\n", `{"text":"alpha"}`, "alpha and more"
	const pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"
	zip := "PK\x03\x04" + strings.Repeat("\x00", 40)
	for _, test := range []struct{ name, content, want string }{
		{"a.csv", "\ufefftext\na\n", "a|"},
		{"a.tsv", "\ufefftext\na\n", "a|"},
		{"a.jsonl", "\ufeff" + lines, "alpha|"},
		{"a.json", "\ufeff[" + lines + "]", "alpha|"},
	} {
		try(t, test.name, test.content, test.want, func(*Options) {})
	}
	for message, test := range map[string]struct{ name, content string }{
		"UTF-16, CSV":          {"a.csv", utf16LE(csv)},
		"UTF-16, TSV":          {"a.tsv", utf16BE(csv)},
		"UTF-16, JSON lines":   {"a.jsonl", utf16LE(lines)},
		"UTF-16, JSON":         {"a.json", utf16BE("[" + lines + "]")},
		"UTF-16, text":         {"a.txt", utf16LE(text)},
		"UTF-16 of odd length": {"a.txt", utf16BE("\ufeff"+text) + "x"},
		"UTF-32, CSV":          {"a.csv", "\xff\xfe\x00\x00t\x00\x00\x00"},
		"UTF-32, text":         {"a.txt", "\xff\xfe\x00\x00t\x00\x00\x00"},
		"pointer, text":        {"a.txt", pointer},
		"pointer, Markdown":    {"a.md", pointer},
		"pointer, JSON lines":  {"a.jsonl", pointer},
		"pointer, JSON":        {"a.json", pointer},
		"pointer, CSV":         {"a.csv", pointer},
		"pointer, Parquet":     {"a.parquet", pointer},
		"pointer, Arrow":       {"a.arrow", pointer},
		"pointer, Feather":     {"a.feather", pointer},
		"gzip, JSON lines":     {"a.jsonl", packGzip(t, lines)},
		"gzip, .gzip":          {"a.jsonl.gzip", packGzip(t, lines)},
		"zip, CSV":             {"a.csv", zip},
		"zip, .xlsx":           {"a.xlsx", zip},
		"zip, .zip":            {"a.jsonl.zip", zip},
		"xz":                   {"a.txt.xz", "\xfd7zXZ\x00\x00\x04"},
		"CR, CSV":              {"a.csv", "text,label\ralpha,1\rbeta,2\r"},
		"CR, TSV":              {"a.tsv", "text\tlabel\ralpha\t1\r"},
		"CR, quoted CSV":       {"a.csv", "\"text\",\"label\"\r\"alpha\",1\r"},
		"CR, JSON lines":       {"a.jsonl", "{\"text\":\"a\"}\r{\"text\":\"b\"}\r"},
		"Latin-1, CSV":         {"a.csv", "text,id\nb\xe9ta,1\n"},
		"Latin-1, JSON lines":  {"a.jsonl", "{\"text\":\"b\xe9ta\"}"},
		"Latin-1, text":        {"a.txt", "b\xe9ta"},
	} {
		refused(t, message, test.name, test.content, func(*Options) {})
	}
	provided, err := os.ReadFile(filepath.Join("testdata", "outside", "lines-end-in-cr.csv"))
	if err != nil {
		t.Fatal(err)
	}
	refused(t, "CR, provided file", "a.csv", string(provided), func(*Options) {})
}

// TestSkippedFilesAreNamed checks that the first file of a folder that is not text is named with
// the reason.
func TestSkippedFilesAreNamed(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, map[string]string{"in/a.txt": "a", "in/b.txt": utf16LE("no mark"), "in/c.bin": "\x00\xff"})
	o := options(filepath.Join(dir, "in"))
	o.Output = filepath.Join(dir, "out")
	var last Progress
	o.Progress = func(p Progress) { last = p }
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(last.FirstSkipped, filepath.Join(dir, "in", "b.txt")+": ") || !strings.Contains(last.FirstSkipped, "UTF-16") || last.SkippedBinary != 2 {
		t.Errorf("got %+v; want text that begins with filepath.Join(dir, \"in\", \"b.txt\") + \": \" and text with \"UTF-16\" and last.SkippedBinary == 2", last)
	}
}
