package samples

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestFile writes samples, reads them for their run, and replaces the file.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "samples.json")
	f := Watch(path)
	if f.Of("run") != nil {
		t.Error("a missing file has samples")
	}
	put := func(content []byte, at int) {
		t.Helper()
		if err := errors.Join(os.WriteFile(path, content, 0o600), os.Chtimes(path, time.Unix(int64(at), 0), time.Unix(int64(at), 0))); err != nil {
			t.Fatal(err)
		}
	}
	s := Samples{RunID: "run", Prompt: "The", Texts: []Text{{0, "?"}, {8, " end"}}}
	content, err := s.Encode()
	if err != nil {
		t.Fatal(err)
	}
	put(content, 1)
	if got := f.Of("run"); got == nil || !reflect.DeepEqual(*got, s) {
		t.Errorf("samples %+v, want %+v", got, s)
	}
	if f.Of("other") != nil {
		t.Error("another run has the samples")
	}
	put([]byte("{"), 2)
	if f.Of("run") != nil {
		t.Error("an invalid file has samples")
	}
}

// TestRead reads files that no host wrote.
func TestRead(t *testing.T) {
	path := filepath.Join(t.TempDir(), "samples.json")
	if _, err := Read(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
	texts := `{"step":1,"text":"a"},`
	for _, content := range []string{"", "[]", `{"texts":7}`, `{"texts":[` + strings.Repeat(texts, maxTexts) + `{}]}`, `{"prompt":"` + strings.Repeat("a", maxFile) + `"}`} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); !errors.Is(err, ErrInvalid) {
			t.Errorf("%.40q: %v, want %v", content, err, ErrInvalid)
		}
	}
	if err := os.WriteFile(path, []byte(`{"prompt":"\u001b","texts":[{"text":"`+strings.Repeat("é", MaxText)+`"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Read(path); err != nil || s.Prompt != "\ufffd" || len(s.Texts[0].Text) != MaxText {
		t.Errorf("%v: prompt %q, text of %d bytes", err, s.Prompt, len(s.Texts[0].Text))
	}
}
