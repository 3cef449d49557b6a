package pythonjson

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/psyche-go/psyche/base/fuzztest"
)

var cases = []struct{ text, standard, quoted string }{
	{`{"text":"alpha","score":NaN}`, `{"text":"alpha","score":null}`, `{"text":"alpha","score":"N"}`},
	{`{"a":Infinity,"b":-Infinity}`, `{"a":1e9999,"b":-1e9999}`, `{"a":"Infini","b":"-Infini"}`},
	{`[NaN, NaN,-Infinity ]`, `[null, null,-1e9999 ]`, `["N", "N","-Infini" ]`},
	{`NaN`, `null`, `"N"`},
	{"{\n \"a\" : NaN\n}", "{\n \"a\" : null\n}", "{\n \"a\" : \"N\"\n}"},
	{`{"NaN":"a NaN, Infinity: \" NaN, \\"}`, `{"NaN":"a NaN, Infinity: \" NaN, \\"}`, `{"NaN":"a NaN, Infinity: \" NaN, \\"}`},
	{`{"\\":NaN}`, `{"\\":null}`, `{"\\":"N"}`},
	{`[NaNo, nan, +Infinity, xNaN, Infinity1, --Infinity]`, `[NaNo, nan, +Infinity, xNaN, Infinity1, --Infinity]`, `[NaNo, nan, +Infinity, xNaN, Infinity1, --Infinity]`},
	{`[-1, -5e3] NaNNaN`, `[-1, -5e3] NaNNaN`, `[-1, -5e3] NaNNaN`},
	{`{"a":1}`, `{"a":1}`, `{"a":1}`},
	{``, ``, ``},
}

func TestConstants(t *testing.T) {
	for _, c := range cases {
		if got := string(Standard([]byte(c.text))); got != c.standard {
			t.Errorf("%s: %s, want %s", c.text, got, c.standard)
		}
		if got := string(Quoted([]byte(c.text))); got != c.quoted || len(got) != len(c.text) {
			t.Errorf("%s: %s, want %s", c.text, got, c.quoted)
		}
		got, err := io.ReadAll(iotest.OneByteReader(Reader(iotest.OneByteReader(strings.NewReader(c.text)))))
		if err != nil || string(got) != c.standard {
			t.Errorf("%s, in single bytes: %s, %v; want %s", c.text, got, err, c.standard)
		}
	}
}

// TestReaderKeepsErrors checks that the reader returns the text before an error, then the error.
func TestReaderKeepsErrors(t *testing.T) {
	broken := errors.New("broken")
	got, err := io.ReadAll(Reader(io.MultiReader(strings.NewReader("[NaN, -Inf"), iotest.ErrReader(broken))))
	if string(got) != "[null, -Inf" || !errors.Is(err, broken) {
		t.Errorf("got %s, %v; want string(got) == \"[null, -Inf\" and error %v", got, err, broken)
	}
}

// FuzzStandard checks that standard JSON is unchanged, and that both functions make the same JSON
// of a text.
func FuzzStandard(f *testing.F) {
	for _, c := range cases {
		f.Add(c.text)
	}
	fuzztest.Run(f, func(t *testing.T, text string) {
		standard, quoted := Standard([]byte(text)), Quoted([]byte(text))
		if json.Valid([]byte(text)) && (string(standard) != text || string(quoted) != text) {
			t.Fatalf("%s became %s and %s", text, standard, quoted)
		}
		if len(quoted) != len(text) || json.Valid(standard) != json.Valid(quoted) {
			t.Fatalf("%s became %s and %s", text, standard, quoted)
		}
	})
}
