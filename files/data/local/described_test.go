package local

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/files/data/manifest"
)

// described makes a folder of tokens with a data.json: two files of 9 tokens, one of 5 that
// is held out.
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
		want    []string // parts of the error; none: there is none
	}{
		{"untouched", nil, "", two, nil},
		{"held out", nil, "heldout", two, nil},
		{"one file", nil, "a.ds", two, nil},
		{"token size", nil, "", four, []string{"data.json sets 2 bytes per token", "in use is 4", "--token-size"}},
		{"token size of what is held out", nil, "heldout", four, []string{"data.json sets 2 bytes per token"}},
		{"token size of one file", nil, "b.ds", four, []string{"data.json sets 2 bytes per token"}},
		{"cut off", func(dir string) error { return os.Truncate(filepath.Join(dir, "b.ds"), 12) }, "", two,
			[]string{"b.ds", "12 bytes", "lists 18", "make the data again"}},
		{"cut off, one file", func(dir string) error { return os.Truncate(filepath.Join(dir, "b.ds"), 12) }, "b.ds", two, []string{"lists 18"}},
		{"held out and longer", func(dir string) error { return os.Truncate(filepath.Join(dir, "heldout", "heldout.ds"), 12) }, "heldout", two,
			[]string{"heldout.ds", "12 bytes", "lists 10"}},
		{"missing", func(dir string) error { return os.Remove(filepath.Join(dir, "a.ds")) }, "", two, []string{"a.ds is missing", "data.json lists it"}},
		{"one more", func(dir string) error { return os.WriteFile(filepath.Join(dir, "c.ds"), make([]byte, 18), 0o644) }, "", two,
			[]string{"c.ds is in the folder", "does not list it"}},
		{"one more, alone", func(dir string) error { return os.WriteFile(filepath.Join(dir, "c.ds"), make([]byte, 18), 0o644) }, "c.ds", two, nil},
		{"damaged manifest", func(dir string) error { return os.WriteFile(filepath.Join(dir, manifest.Name), []byte("{"), 0o644) }, "", two,
			[]string{"read manifest", "data.json"}},
		{"a data.json of another purpose", func(dir string) error {
			return os.WriteFile(filepath.Join(dir, manifest.Name), []byte(`{"files": "many"}`), 0o644)
		}, "", four, []string{"not a whole number of tokens"}},
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
			if (err != nil) != (test.want != nil) {
				t.Fatalf("got %v, want an error with %q", err, test.want)
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, want %q", err, want)
				}
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
			t.Errorf("%s: %d", path, folder.TokenSize())
		}
	}
}

func TestFingerprint(t *testing.T) {
	o := Options{SeqLen: 4, TokenSize: 2}
	first, again := open(t, described(t), o), open(t, described(t), o)
	if first.Fingerprint() != again.Fingerprint() {
		t.Error("the same data in another folder has another fingerprint")
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
