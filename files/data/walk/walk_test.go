package walk

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
)

// lay writes files that contain their own paths, and links: "link -> target".
func lay(t *testing.T, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		name, target, link := strings.Cut(name, " -> ")
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if link {
			err = os.Symlink(filepath.FromSlash(target), path)
		} else {
			err = os.WriteFile(path, []byte(name), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func inside(found Found) (names []string) {
	for _, file := range found.Files {
		names = append(names, file.Inside)
	}
	return names
}

func TestFiles(t *testing.T) {
	for name, test := range map[string]struct {
		laid   []string
		root   string // within the folder
		hidden bool
		want   []string
		counts Counts
	}{
		"download": {
			laid: []string{".gitattributes", ".cache/huggingface/.gitignore", ".cache/huggingface/CACHEDIR.TAG", ".cache/huggingface/download/a.metadata", "data/a.txt", "README.md"},
			want: []string{"README.md", "data/a.txt"}, counts: Counts{Hidden: 2},
		},
		"checkout":        {laid: []string{".git/config", ".git/hooks/pre-push", "main.go"}, want: []string{"main.go"}, counts: Counts{Hidden: 1}},
		"macOS":           {laid: []string{"._a.txt", ".DS_Store", "a.txt", "__MACOSX/b.txt"}, want: []string{"a.txt"}, counts: Counts{Hidden: 3}},
		"locks":           {laid: []string{"a.txt", "a.txt.lock", "b.parquet.incomplete", "~$c.docx", "train.ds.metadata", "CACHEDIR.TAG"}, want: []string{"a.txt"}, counts: Counts{Hidden: 5}},
		"include hidden":  {laid: []string{".git/config", "._a.txt", "a.lock"}, hidden: true, want: []string{"._a.txt", ".git/config", "a.lock"}},
		"hidden root":     {laid: []string{".data/a.txt", ".data/.b"}, root: ".data", want: []string{"a.txt"}, counts: Counts{Hidden: 1}},
		"links":           {laid: []string{"n/a.txt", "n/b.txt -> ../t.txt", "n/more -> ../m", "m/x.txt", "t.txt"}, root: "n", want: []string{"a.txt", "b.txt", "more/x.txt"}, counts: Counts{Links: 2}},
		"root is a link":  {laid: []string{"m/x.txt", "l -> m"}, root: "l", want: []string{"x.txt"}},
		"link to parent":  {laid: []string{"a.txt", "d/b.txt", "d/up -> ..", "d/self -> ."}, want: []string{"a.txt", "d/b.txt"}, counts: Counts{Dead: 2}},
		"loop of two":     {laid: []string{"n/a -> ../m", "m/b -> ../n", "m/x"}, root: "n", want: []string{"a/x"}, counts: Counts{Links: 1, Dead: 1}},
		"link above root": {laid: []string{"n/a", "n/up -> ..", "b"}, root: "n", want: []string{"a", "up/b"}, counts: Counts{Links: 1, Dead: 1}},
		"no target":       {laid: []string{"a.txt", "gone -> nothing", "round -> round"}, want: []string{"a.txt"}, counts: Counts{Dead: 2}},
		"hidden target":   {laid: []string{"snap/a.txt -> ../.blobs/1", ".blobs/1"}, root: "snap", want: []string{"a.txt"}, counts: Counts{Links: 1}},
		"notebooks":       {laid: []string{".ipynb_checkpoints/a-checkpoint.txt", "a.txt", "b/.ipynb_checkpoints/c.txt", "b/.~lock.x.odt#"}, want: []string{"a.txt"}, counts: Counts{Hidden: 3}},
		"Windows":         {laid: []string{"Thumbs.db", "thumbs.db", "ehthumbs.db", "Desktop.ini", "DESKTOP.INI", "a.TXT", "b.LOCK", "c.crdownload"}, want: []string{"a.TXT"}, counts: Counts{Hidden: 7}},
		"Finder":          {laid: []string{"Icon\r", ".fseventsd/x", ".Spotlight-V100/y", "Icon", "__MACOSX/._a"}, want: []string{"Icon"}, counts: Counts{Hidden: 4}},
		"Python":          {laid: []string{"pkg/__pycache__/a.pyc", "pkg/__init__.py", "pkg/__main__.py", "__x/y"}, want: []string{"pkg/__init__.py", "pkg/__main__.py"}, counts: Counts{Hidden: 2}},
		"editors":         {laid: []string{"a.txt~", "#a.txt#", ".#a.txt", ".a.txt.swp", "a.txt"}, want: []string{"#a.txt#", "a.txt"}, counts: Counts{Hidden: 3}},
		"Hub's cache":     {laid: []string{"s/main/data/a.parquet -> ../../../blobs/1", "s/main/README.md -> ../../blobs/2", "s/main/.gitattributes -> ../../blobs/3", "blobs/1", "blobs/2", "blobs/3", "blobs/4.incomplete", ".locks/1.lock", ".no_exist/x"}, root: "s/main", want: []string{"README.md", "data/a.parquet"}, counts: Counts{Hidden: 1, Links: 2}},
		"whole cache":     {laid: []string{"s/main/a -> ../../blobs/1", "blobs/1", "blobs/4.incomplete", ".locks/1.lock", "refs/main"}, want: []string{"blobs/1", "refs/main", "s/main/a"}, counts: Counts{Hidden: 2, Links: 1}},
		"hidden links":    {laid: []string{"n/.a -> ../t", "n/b.lock -> ../t", "n/__c -> ../m", "n/d -> ../m", "m/x", "t"}, root: "n", want: []string{"d/x"}, counts: Counts{Hidden: 3, Links: 1}},
		"chain of links":  {laid: []string{"n/a -> b", "n/b -> ../t", "t"}, root: "n", want: []string{"a", "b"}, counts: Counts{Links: 2}},
		"same twice":      {laid: []string{"n/a -> ../m", "n/b -> ../m", "m/x"}, root: "n", want: []string{"a/x", "b/x"}, counts: Counts{Links: 2}},
		"through a file":  {laid: []string{"a", "b -> a/x", "c -> a/"}, want: []string{"a"}, counts: Counts{Dead: 2}},
		"devices":         {laid: []string{"a", "b -> /dev/null", "c -> /dev/zero"}, want: []string{"a"}, counts: Counts{Other: 2}},
		"include folders": {laid: []string{"__MACOSX/._a", "__pycache__/b", "c~", "Thumbs.db"}, hidden: true, want: []string{"Thumbs.db", "__MACOSX/._a", "__pycache__/b", "c~"}},
		"dots not at end": {laid: []string{"a.b.txt", "a.git/x", "..."}, want: []string{"a.b.txt", "a.git/x"}, counts: Counts{Hidden: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := Files(filepath.Join(lay(t, test.laid...), test.root), Options{Hidden: test.hidden})
			if err != nil {
				t.Fatal(err)
			}
			if got := inside(found); !slices.Equal(got, test.want) || found.Counts != test.counts {
				t.Errorf("%q, %+v; want %q, %+v", got, found.Counts, test.want, test.counts)
			}
		})
	}
}

// TestFilesAreThoseOfTheTarget: a link gives the size and kind of its target.
func TestFilesAreThoseOfTheTarget(t *testing.T) {
	found, err := Files(filepath.Join(lay(t, "n/a -> ../target", "target"), "n"), Options{})
	if err != nil || len(found.Files) != 1 {
		t.Fatal(found, err)
	}
	if info := found.Files[0].Info; info.Size() != int64(len("target")) || !info.Mode().IsRegular() {
		t.Errorf("%d bytes, %v", info.Size(), info.Mode())
	}
}

// TestEnter leaves out folders, and gets each with its path.
func TestEnter(t *testing.T) {
	dir := lay(t, "a/x", "b/y", "b/c/z", "l -> b")
	var entered []string
	found, err := Files(dir, Options{Enter: func(folder string, _ fs.FileInfo) (bool, error) {
		rel, err := filepath.Rel(dir, folder)
		entered = append(entered, filepath.ToSlash(rel))
		return filepath.Base(folder) != "c", err
	}})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := inside(found), []string{"a/x", "b/y", "l/y"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if want := []string{".", "a", "b", "b/c", "l", "l/c"}; !slices.Equal(entered, want) {
		t.Errorf("entered %q, want %q", entered, want)
	}
}

func TestFilesRefuses(t *testing.T) {
	dir := lay(t, "a.txt")
	if _, err := Files(filepath.Join(dir, "none"), Options{}); err == nil {
		t.Error("a folder that is not there was listed")
	}
	_, err := Files(filepath.Join(dir, "a.txt"), Options{})
	golden.Message(t, "file", err)
}

func TestCountsString(t *testing.T) {
	for want, counts := range map[string]Counts{
		"":                          {},
		"; 2 hidden names excluded": {Hidden: 2},
		"; 1 hidden names excluded; 3 symbolic links followed": {Hidden: 1, Links: 3},
	} {
		if got := counts.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
