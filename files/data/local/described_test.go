package local

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/data/manifest"
)

// described creates a folder of tokens with a data.json: two files of 9 tokens, and a held-out file
// of 5 tokens.
func described(t *testing.T) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "data")
	if err := os.MkdirAll(filepath.Join(dir, "heldout"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "a.ds"), count(0, 9)...)
	write(t, filepath.Join(dir, "b.ds"), count(9, 9)...)
	write(t, filepath.Join(dir, "heldout", "heldout.ds"), count(20, 5)...)
	writeManifest(t, dir, manifest.Manifest{
		Version: 1, TokenSizeInBytes: 2,
		Files:   []manifest.File{{Name: "a.ds", Tokens: 9, SHA256: "aa"}, {Name: "b.ds", Tokens: 9, SHA256: "bb"}},
		HeldOut: []manifest.File{{Name: "heldout/heldout.ds", Tokens: 5, SHA256: "cc"}},
	})
	return dir
}

func writeManifest(t *testing.T, dir string, m manifest.Manifest) {
	t.Helper()
	text, err := m.Encode()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, manifest.Name), text, 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestFilesAreWhatTheirManifestSays(t *testing.T) {
	two, four := Options{SeqLen: 4, TokenSize: 2}, Options{SeqLen: 1, TokenSize: 4}
	tests := []struct {
		name    string
		change  func(dir string) error
		path    string // in the folder
		options Options
		ok      bool
	}{
		{"untouched", nil, "", two, true},
		{"held out", nil, "heldout", two, true},
		{"one file", nil, "a.ds", two, true},
		{"token size", nil, "", four, false},
		{"token size of what is held out", nil, "heldout", four, false},
		{"token size of one file", nil, "b.ds", four, false},
		{"cut off", func(dir string) error { return os.Truncate(filepath.Join(dir, "b.ds"), 12) }, "", two,
			false},
		{"cut off, one file", func(dir string) error { return os.Truncate(filepath.Join(dir, "b.ds"), 12) }, "b.ds", two, false},
		{"held out and longer", func(dir string) error { return os.Truncate(filepath.Join(dir, "heldout", "heldout.ds"), 12) }, "heldout", two,
			false},
		{"missing", func(dir string) error { return os.Remove(filepath.Join(dir, "a.ds")) }, "", two, false},
		{"one more", func(dir string) error { return os.WriteFile(filepath.Join(dir, "c.ds"), make([]byte, 18), 0o644) }, "", two,
			false},
		{"one more, alone", func(dir string) error { return os.WriteFile(filepath.Join(dir, "c.ds"), make([]byte, 18), 0o644) }, "c.ds", two, true},
		{"damaged manifest", func(dir string) error { return os.WriteFile(filepath.Join(dir, manifest.Name), []byte("{"), 0o644) }, "", two,
			false},
		{"a data.json of another purpose", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, manifest.Name), []byte(`{"files": "many"}`), 0o644)
		}, "", four, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			dir := described(t)
			if test.change != nil {
				if err := test.change(dir); err != nil {
					t.Fatal(err)
				}
			}
			folder, err := Open(filepath.Join(dir, test.path), test.options)
			if err == nil {
				err = folder.Close()
			}
			if test.ok && err != nil {
				t.Error(err)
			} else if !test.ok {
				golden.Message(t, test.name, err)
			}
		})
	}
}

func TestTheManifestIsFoundFromInside(t *testing.T) {
	t.Chdir(filepath.Join(described(t), "heldout"))
	for _, path := range []string{".", "heldout.ds"} {
		if _, err := Open(path, Options{SeqLen: 1, TokenSize: 4}); !errors.Is(err, ErrDescribed) {
			t.Errorf("%s: got %v", path, err)
		}
	}
}

func TestTheManifestSaysTheTokenSize(t *testing.T) {
	dir := described(t)
	for _, path := range []string{dir, filepath.Join(dir, "heldout"), filepath.Join(dir, "a.ds")} {
		if folder := open(t, path, Options{SeqLen: 4}); folder.TokenSize() != 2 {
			t.Errorf("%s: got %d; want folder.TokenSize() == 2", path, folder.TokenSize())
		}
	}
}

func TestFingerprint(t *testing.T) {
	o := Options{SeqLen: 4, TokenSize: 2}
	first, again := open(t, described(t), o), open(t, described(t), o)
	if first.Fingerprint() != again.Fingerprint() {
		t.Error("the same data in a different folder has a different fingerprint")
	}
	dir := described(t)
	writeManifest(t, dir, manifest.Manifest{
		Version: 1, TokenSizeInBytes: 2,
		Files: []manifest.File{{Name: "a.ds", Tokens: 9, SHA256: "aa"}, {Name: "b.ds", Tokens: 9, SHA256: "other"}},
	})
	if open(t, dir, o).Fingerprint() == first.Fingerprint() {
		t.Error("files of other content have the same fingerprint")
	}
	bare := t.TempDir()
	write(t, filepath.Join(bare, "a.ds"), count(0, 9)...)
	short := open(t, bare, o).Fingerprint()
	write(t, filepath.Join(bare, "b.ds"), count(0, 5)...)
	if open(t, bare, o).Fingerprint() == short {
		t.Error("one file more has the same fingerprint")
	}
}
