package manifest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
)

func TestRead(t *testing.T) {
	good := Manifest{Version: 1, TokenSizeInBytes: 4, Separator: []int32{1}, Files: []File{{Name: "a.ds", Tokens: 1}}}
	text, err := good.Encode()
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name, text string
		found      bool
		ok         bool
	}{
		{"good", string(text), true, true},
		{"of another purpose", `{"name": "my data"}`, false, true},
		{"a list", `[1, 2]`, false, true},
		{"cut off", string(text[:len(text)/2]), false, false},
		{"other version", `{"version": 2, "token_size_in_bytes": 2}`, false, false},
		{"other size", `{"version": 1, "token_size_in_bytes": 3}`, false, false},
		{"unknown field", `{"version": 1, "token_size_in_bytes": 2, "more": 1}`, false, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, Name), []byte(test.text), 0o644); err != nil {
				t.Fatal(err)
			}
			m, found, err := Read(dir)
			if found != test.found || test.ok && err != nil {
				t.Errorf("found %v, %v; want %v", found, err, test.found)
			}
			if !test.ok {
				golden.Message(t, test.name, err)
			}
			if found && cmp.Diff(good, m) != "" {
				t.Errorf("read %+v", m)
			}
		})
	}
	if _, found, err := Read(filepath.Join(t.TempDir(), "nowhere")); found || err != nil {
		t.Errorf("without a manifest: %v, %v", found, err)
	}
}

func FuzzRead(f *testing.F) {
	text, err := Manifest{Version: 1, TokenSizeInBytes: 2, Files: []File{{Name: "a.ds", Tokens: 1}}}.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	fuzztest.Run(f, func(t *testing.T, text []byte) {
		if m, found, err := parse(text); found && (err != nil || m.Version != 1 || m.TokenSizeInBytes != 2 && m.TokenSizeInBytes != 4) {
			t.Fatalf("accepted %+v, %v", m, err)
		}
	})
}
