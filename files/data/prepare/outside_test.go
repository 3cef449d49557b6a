package prepare

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/golden"
)

// madeOf returns the texts of a run for one file, each followed by |, or the run's error.
func madeOf(t *testing.T, name, content string, change func(*Options)) (string, error) {
	t.Helper()
	dir := t.TempDir()
	tree(t, dir, map[string]string{name: content})
	o := options(filepath.Join(dir, name))
	o.Output = filepath.Join(dir, "out")
	change(&o)
	if _, err := Run(t.Context(), o); err != nil {
		return "", err
	}
	return text(t, filepath.Join(o.Output, "train-00000.ds")), nil
}

// try checks the texts of a run for one file.
func try(t *testing.T, name, content, want string, change func(*Options)) {
	t.Helper()
	if got, err := madeOf(t, name, content, change); err != nil || got != want {
		t.Errorf("%s, %q: %q, %v; want %q", name, content, got, err, want)
	}
}

// refused checks the golden message of a run for a file that it refuses.
func refused(t *testing.T, message, name, content string, change func(*Options)) {
	t.Helper()
	_, err := madeOf(t, name, content, change)
	golden.Message(t, message, err)
}

func TestQuotes(t *testing.T) {
	for _, test := range []struct {
		name, content string
		quotes        Quotes
		want          string
	}{
		{"a.tsv", "id\ttext\n1\tHe said \"hi\" to me\n2\tplain\n", "", `He said "hi" to me|plain|`},
		{"a.tsv", "id\ttext\n1\t\"Quoted\" start\n2\tplain\n", quotesAuto, `"Quoted" start|plain|`},
		{"a.tsv", "id\ttext\r\n1\t5\" tall\r\n\r\n2\t\"\r\n", quotesAuto, `5" tall|"|`},
		{"a.tsv.gz", packGzip(t, "text\tid\n\"a\"\"b\t1"), "", `"a""b|`},
		{"a.tsv", "id\ttext\n1\t\"two\nlines\"\n", quotesDouble, "two\nlines|"},
		{"a.csv", "text,id\n5 inch 9\" tall,1\n", quotesNone, `5 inch 9" tall|`},
		{"a.csv", "text,id\n\"a, b\",1\n", "", "a, b|"},
	} {
		try(t, test.name, test.content, test.want, func(o *Options) { o.Quotes = test.quotes })
	}
	for message, test := range map[string]struct {
		name, content string
		quotes        Quotes
	}{
		"break in quotes":         {"a.tsv", "id\ttext\n1\t\"two\nlines\"\n", ""},
		"quoted columns":          {"a.tsv", "\"id\"\t\"text\"\n1\t\"a\"\n", ""},
		"missing column":          {"a.tsv", "id\tbody\n1\ta\n", ""},
		"quote in a value":        {"a.csv", "text,id\n5 inch 9\" tall,1\n", ""},
		"comma in quotes, unread": {"a.csv", "text,id\n\"a, b\",1\n", quotesNone},
		"unknown quotes":          {"a.csv", "text\na\n", "single"},
	} {
		refused(t, message, test.name, test.content, func(o *Options) { o.Quotes = test.quotes })
	}
}

// TestPlainRecordsGoOn reads unquoted records from each position on.
func TestPlainRecordsGoOn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.tsv")
	if err := os.WriteFile(path, []byte("id\ttext\n1\ta\n\n2\tb\"\n3\tc\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for position, want := range []string{"a", `b"`, "c"} {
		r, err := Options{Field: "text"}.open(t.Context(), source{path: path, format: formatCSV}, int64(position))
		if err != nil {
			t.Fatal(err)
		}
		got, err := r.next()
		if err != nil || string(got.text) != want {
			t.Errorf("%d: %q, %v; want %q", position, got.text, err, want)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestPythonsConstants checks the handling of NaN and Infinity, which json.dump writes. NaN has no
// text, like null.
func TestPythonsConstants(t *testing.T) {
	const lines = "{\"text\":\"alpha\",\"score\":NaN}\n{\"text\":\"NaN, Infinity\",\"score\":[Infinity, -Infinity]}\n{\"text\":NaN}\n"
	array := "[" + strings.ReplaceAll(strings.TrimSpace(lines), "\n", ",\n") + "]"
	for name, content := range map[string]string{"a.jsonl": lines, "lines.json": lines, "array.json": array, "a.json.gz": packGzip(t, array)} {
		try(t, name, content, "alpha|NaN, Infinity|", func(*Options) {})
	}
	refused(t, "Infinity", "a.jsonl", `{"text":Infinity}`, func(*Options) {})
	refused(t, "nan", "a.jsonl", `{"text":"a","b":nan}`, func(*Options) {})
	try(t, "a.json", `{"data":[{"text":"a","b":NaN},{"text":NaN}]}`, "a|", func(o *Options) { o.Field = "data.text" })
}

// TestFieldOfOneObject checks that a named field selects the texts of one object, from the first
// list on the path.
func TestFieldOfOneObject(t *testing.T) {
	for _, test := range []struct{ name, field, content, want string }{
		{"a.json", "data.text", `{"version":"1","data":[{"text":"a"},{"text":"b"},{}]}`, "a|b|"},
		{"a.json", "text", "{\n \"text\": [\"a\", null, \"b\"], \"label\": [1, 2, 3]}\n", "a|b|"},
		{"a.json.gz", "data.text", packGzip(t, `{"data":[{"text":"a"}]}`), "a|"},
		{"a.json", "a.b.c", `{"a":{"b":[{"c":["x","y"]},{"c":"z"}]}}`, "x\ny|z|"},
		{"a.json", "data[1].text", `{"data":[{"text":"a"},{"text":"b"}]}`, "b|"},
		{"a.json", "a.b", `{"a.b":["x"]}`, "x|"},
		{"a.json", "text", `{"text":"one"}`, "one|"},
		{"a.json", "ids", `{"ids":[97,98]}`, "ab|"},
		{"a.json", "ids", `{"ids":[[97,98],[99]]}`, "ab|c|"},
		{"a.json", "", `{"text":"one"}`, `{"text":"one"}|`},
	} {
		try(t, test.name, test.content, test.want, func(o *Options) { o.Field = test.field })
	}
	for message, test := range map[string]struct{ name, field, content string }{
		"missing key":            {"a.json", "body", `{"text":"one"}`},
		"missing key on a path":  {"a.json", "data.text", `{"data":{"x":1}}`},
		"array of a text":        {"a.json", "text", `["a"]`},
		"a text":                 {"a.json", "text", `"a"`},
		"number":                 {"a.json", "text", `{"text":5}`},
		"text and object":        {"a.json", "text", `{"text":["a",{"b":1}]}`},
		"cut object":             {"a.json", "text", `{"text":`},
		"file without any field": {"a.txt", "text", "plain"},
	} {
		refused(t, message, test.name, test.content, func(o *Options) { o.Field = test.field })
	}
	try(t, "a.json", `{"text":["a"]}`, "a|", func(o *Options) { o.Format = formatJSON })
}

// TestFieldBesideText checks that a folder may contain tables and plain text.
func TestFieldBesideText(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, map[string]string{"in/a.txt": "plain", "in/b.jsonl": `{"body":"x"}`})
	o := options(filepath.Join(dir, "in"))
	o.Output, o.Field = filepath.Join(dir, "out"), "body"
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if got := text(t, filepath.Join(o.Output, "train-00000.ds")); got != "plain|x|" {
		t.Errorf("got %q; want \"plain|x|\"", got)
	}
}

// TestNamesOfTables checks that Parquet and Arrow are recognised by additional endings and by their
// content.
func TestNamesOfTables(t *testing.T) {
	read := func(name string) string {
		content, err := os.ReadFile(filepath.Join("testdata", "empty", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	for _, name := range []string{"a.pq", "a.parq", "a.parquet.gzip", "a", "a.data"} {
		try(t, name, read("whole.parquet"), "a|b|c|d|", func(*Options) {})
	}
	for _, name := range []string{"a.ipc", "a.arrows", "a.feather", "a.fea", "a"} {
		try(t, name, read("some.arrow"), "a|", func(*Options) {})
	}
	stream, err := os.ReadFile(filepath.Join("testdata", "formats", "stream.arrow"))
	if err != nil {
		t.Fatal(err)
	}
	want, err := madeOf(t, "a.arrow", string(stream), func(*Options) {})
	if err != nil || want == "" {
		t.Fatal(want, err)
	}
	for _, name := range []string{"a.arrows", "a.ipc", "a", "a.data"} {
		try(t, name, string(stream), want, func(*Options) {})
	}
	try(t, "a.txt", "PAR1 is how a Parquet file begins", "PAR1 is how a Parquet file begins|", func(*Options) {})
	refused(t, "not text", "a.bin", "\x00\x01", func(*Options) {})
}

// TestConversationsWithPythonsConstants checks that unread keys may contain Python's constants.
func TestConversationsWithPythonsConstants(t *testing.T) {
	in, err := talks{unread: Unread{}}.conversation([]byte(`{"score":NaN,"messages":[{"role":"assistant","content":"NaN"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff("NaN", in.Messages[0].Content); diff != "" || bytes.Contains(in.Tools, []byte("NaN")) {
		t.Error(diff)
	}
}
