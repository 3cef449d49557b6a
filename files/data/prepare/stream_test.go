package prepare

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
)

// TestNotOneObjectPerLine checks that the error names a format that can read the file.
func TestNotOneObjectPerLine(t *testing.T) {
	for name, content := range map[string]string{
		"indented":       "{\n  \"text\": \"one\"\n}\n{\n  \"text\": \"two\"\n}\n",
		"CR LF":          "{\r\n  \"text\": \"one\"\r\n}\r\n{\"text\": \"two\"}\r\n",
		"cut in a value": "{\"text\":\n\"one\"}\n{\"text\":\n\"two\"}\n",
		"no line break":  `{"text": "one"}{"text": "two"}`,
		"array":          `[{"text": "one"}, {"text": "two"}]`,
		"indented array": "[\n  {\n    \"text\": \"one\"\n  },\n  {\"text\": \"two\"}\n]\n",
	} {
		for _, file := range []string{"a.jsonl", "a.ndjson", "a.jsonl.gz"} {
			packed := content
			if strings.HasSuffix(file, ".gz") {
				packed = packGzip(t, content)
			}
			got, err := madeOf(t, file, packed, func(*Options) {})
			if !errors.Is(err, errNotLines) {
				t.Errorf("%s of %s: %q, %v", file, name, got, err)
			}
			if name == "array" {
				golden.Message(t, file, err)
			}
			try(t, file, packed, "one|two|", func(o *Options) { o.Format = formatJSON })
		}
		try(t, "a.json", content, "one|two|", func(*Options) {})
	}
	try(t, "a.jsonl", "{\n  \"text\": \"one\"\n}\n", "one|", func(o *Options) { o.Format = formatJSON })
	// A later line without an end is truncated, and no other format can read it.
	for _, content := range []string{"{\"text\": \"one\"}\n{\"text\": ", "{\"text\": \"one\"}\n}\n", "[1,"} {
		_, err := madeOf(t, "a.jsonl", content, func(*Options) {})
		if err == nil || errors.Is(err, errNotLines) != (content == "[1,") {
			t.Errorf("%q: got %v; want an error and errors.Is(err, errNotLines) == (content == \"[1,\")", content, err)
		}
	}
}

// TestStreamsGoOn reads objects from each position on.
func TestStreamsGoOn(t *testing.T) {
	dir := t.TempDir()
	tree(t, dir, map[string]string{"a.json": "{\n\"text\": \"one\"}{\"text\": \"two\"}\n{\"text\":\n\"three\"}"})
	o := options(dir).withDefaults()
	for position, want := range []string{"one", "two", "three", ""} {
		r, err := o.open(t.Context(), source{path: filepath.Join(dir, "a.json"), format: formatJSON}, int64(position))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.next(); string(got.text) != want || (err != nil) != (want == "") {
			t.Errorf("from %d: %q, %v", position, got.text, err)
		}
		_ = r.Close()
	}
	_, err := o.open(t.Context(), source{path: filepath.Join(dir, "a.json"), format: formatJSON}, 4)
	golden.Message(t, "from 4", err)
}

// TestConversationsNotOnePerLine checks that the remedy in the error can read the conversations.
func TestConversationsNotOnePerLine(t *testing.T) {
	const one = "{\n  \"messages\": [\n    {\"role\": \"user\", \"content\": \"q\"},\n    {\"role\": \"assistant\", \"content\": \"a\"}\n  ]\n}\n"
	for name, content := range map[string]string{"one": one, "two": one + one, "array": "[" + one + "," + one + "]", "one line": strings.ReplaceAll(one+one, "\n", "")} {
		_, _, err := converse(t, 64, map[string]string{"a.jsonl": content})
		golden.Message(t, name, err)
		if made, _, err := converse(t, 64, map[string]string{"a.json": content}); err != nil || made.Conversations == 0 {
			t.Errorf("%s, renamed: %v, %+v", name, err, made)
		}
	}
}
