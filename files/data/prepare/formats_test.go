package prepare

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/tokenizer"
)

// gpt2 returns the tokenizer of the expected ids.
func gpt2(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	packed, err := os.ReadFile(filepath.Join("..", "..", "tokenizer", "testdata", "gpt2.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	unzip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(unzip)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := os.WriteFile(name, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	loaded, err := tokenizer.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return loaded
}

// TestFormatsAgreeWithDatasets checks that the ids of each format equal the ids of Python's
// datasets and tokenizers (testdata/formats.py).
func TestFormatsAgreeWithDatasets(t *testing.T) { agree(t, "formats") }

// TestVariantsAgreeWithPyarrow checks that the ids of less common types of Arrow and encodings of
// Parquet equal the expected ids (testdata/variants.py).
func TestVariantsAgreeWithPyarrow(t *testing.T) { agree(t, "variants") }

func agree(t *testing.T, folder string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", folder+".json"))
	if err != nil {
		t.Fatal(err)
	}
	var expected []struct {
		Path, Field, Split string
		IDs                [][]int32
	}
	if err := json.Unmarshal(raw, &expected); err != nil {
		t.Fatal(err)
	}
	const separator = 5
	encoder := gpt2(t)
	for _, e := range expected {
		t.Run(e.Path+"/"+e.Field+e.Split, func(t *testing.T) {
			t.Parallel()
			o := Options{
				Paths: []string{filepath.Join("testdata", folder, e.Path)}, Output: t.TempDir(), Tokenizer: encoder, TokenizerName: "gpt2",
				Separator: []int32{separator}, Field: e.Field, Split: e.Split,
			}
			if strings.HasSuffix(e.Path, ".tsv") {
				o.Quotes = quotesDouble
			}
			if _, err := Run(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			var want []int32
			for _, ids := range e.IDs {
				want = append(append(want, ids...), separator)
			}
			made, err := os.ReadFile(filepath.Join(o.Output, "train-00000.ds"))
			if err != nil {
				t.Fatal(err)
			}
			var got []int32
			for i := 0; i < len(made); i += 2 {
				got = append(got, int32(binary.LittleEndian.Uint16(made[i:])))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestPlacesInFilesGoOn checks that every format can resume at each row, as after an interruption.
func TestPlacesInFilesGoOn(t *testing.T) {
	for _, name := range []string{"rows.jsonl.lz4", "rows.json.zst", "zstd.parquet", "snappy.parquet", "stream.arrow", "zstd.feather"} {
		path := filepath.Join("testdata", "formats", name)
		format, err := Options{Format: formatAuto}.formatOf(path, name)
		if err != nil {
			t.Fatal(err)
		}
		read := func(field string, position int64) (found []sample) {
			r, err := Options{Field: field}.open(t.Context(), source{path: path, format: format}, position)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			defer func() { _ = r.Close() }()
			for {
				s, err := r.next()
				if errors.Is(err, io.EOF) {
					return found
				}
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				found = append(found, s.clone())
			}
		}
		for _, field := range []string{"text", "messages.content", "input_ids"} {
			whole := read(field, 0)
			for at := range whole {
				if diff := cmp.Diff(whole[at:], read(field, int64(at)), cmp.AllowUnexported(sample{})); diff != "" {
					t.Errorf("%s, %s from row %d: %s", name, field, at, diff)
				}
			}
		}
	}
}

func TestParseField(t *testing.T) {
	for field, want := range map[string][]step{
		"text": {{key: "text"}}, "a.b": {{key: "a"}, {key: "b"}}, "a[2].b": {{key: "a"}, {place: 2}, {key: "b"}}, "a[0][13]": {{key: "a"}, {}, {place: 13}},
		"": nil, "a.": nil, "a[": nil, "a[x]": nil, "a[-1]": nil, "a[1": nil, "a[1]b": nil, "[0]": nil, "a[1][": nil, "a[]": nil,
	} {
		got, err := parseField(field)
		if (err != nil) != (want == nil) || err == nil && !cmp.Equal(got, want, cmp.AllowUnexported(step{})) {
			t.Errorf("%q: %v, %v", field, got, err)
		}
	}
}

func TestTextOf(t *testing.T) {
	for line, want := range map[string]string{
		`{"a.b": "x", "a": {"b": "y"}}`:         "x",
		`{"a": {"b": null}}`:                    "",
		`{"a": {}}`:                             "",
		`{"a": null}`:                           "",
		`{"a": [{"b": "x"}, {}, {"b": ["y"]}]}`: "x\ny",
	} {
		if got, err := textOf([]byte(line), "a.b"); err != nil || string(got.text) != want {
			t.Errorf("%s: got %q, %v; want nil error and string(got.text) == want", line, got.text, err)
		}
	}
	for name, line := range map[string]string{
		"text for an object": `{"a": "x"}`,
		"object for a text":  `{"a": {"b": {"c": "x"}}}`,
		"text and id":        `{"a": {"b": ["x", 1]}}`,
		"negative id":        `{"a": {"b": [1, -1]}}`,
		"fractional id":      `{"a": {"b": [1, 1.5]}}`,
		"number":             `{"a": {"b": 1}}`,
		"missing key":        `{"b": 1}`,
		"40 lists in a list": `{"a": ` + strings.Repeat("[", 40) + strings.Repeat("]", 40) + `}`,
	} {
		_, err := textOf([]byte(line), "a.b")
		golden.Message(t, name, err)
	}
}

// FuzzArrow checks that damaged files give errors and need little memory.
func FuzzArrow(f *testing.F) {
	for _, name := range []string{"formats/stream.arrow", "formats/zstd.feather", "formats/lz4.feather", "variants/views.arrow", "variants/categories-lz4.arrow", "variants/growing.arrow"} {
		raw, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw, "text")
		f.Add(raw, "lists")
		f.Add(raw, "messages.content")
		f.Add(raw, "input_ids")
		f.Add(raw, "meta.tags[1]")
	}
	fuzztest.Run(f, func(t *testing.T, content []byte, field string) {
		path := filepath.Join(t.TempDir(), "a.arrow")
		if err := os.WriteFile(path, content, 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := Options{Field: field}.open(t.Context(), source{path: path, format: formatArrow}, 0)
		if err != nil {
			return
		}
		for n := 0; err == nil && n < 1000; n++ {
			_, err = r.next()
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzTextOf checks that no field of any JSON causes a panic.
func FuzzTextOf(f *testing.F) {
	f.Add([]byte(`{"a": [{"b": "c"}, {"b": null}], "d": [1, 2]}`), "a[0].b")
	f.Add([]byte(`{"a": [[[[1]]]]}`), "a")
	f.Add(append(bytes.Repeat([]byte(`{"a":[`), 200), '1'), "a.a.a")
	fuzztest.Run(f, func(_ *testing.T, line []byte, field string) { _, _ = textOf(line, field) })
}
