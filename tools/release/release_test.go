package main

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"aead.dev/minisign"
)

func TestEntryOf(t *testing.T) {
	const log = "# Changelog\n\nText.\n\n## [Unreleased]\n\n## [0.2.0] - 2026-12-01\n\n### Added\n\n- Two.\n\n## [0.1.0] - Unreleased\n\n- One.\n"
	for _, c := range []struct {
		version, want string
		err           error
	}{
		{"0.2.0", "### Added\n\n- Two.", nil},
		{"0.1.0", "", errNoDate},
		{"Unreleased", "", errNoEntry},
		{"0.3.0", "", errNoEntry},
		{"0.2", "", errNoEntry},
	} {
		if got, err := releasedEntry(log, c.version); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%s: %q, %v; want %q, %v", c.version, got, err, c.want, c.err)
		}
	}
}

// TestChangelog checks that the repository's changelog has an entry for the next release.
func TestChangelog(t *testing.T) {
	root := repository(t)
	version, err := readVersion(root)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := entryOf(string(text), version); err != nil {
		t.Error(err)
	}
}

// history creates a repository with one commit of the given version and changelog.
func history(t *testing.T, version, log string) string {
	t.Helper()
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, filepath.Dir(versionFile)), 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{versionFile: version + "\n", "CHANGELOG.md": log} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	git(t, root, "init", "--quiet")
	git(t, root, "config", "user.name", "Test")
	git(t, root, "config", "user.email", "test@example.com")
	git(t, root, "config", "tag.gpgSign", "false")
	git(t, root, "add", ".")
	git(t, root, "commit", "--quiet", "--no-gpg-sign", "-m", "One")
	return root
}

func git(t *testing.T, root string, args ...string) string {
	t.Helper()
	out, err := output(t.Context(), root, nil, "git", args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestTag(t *testing.T) {
	const log = "## [0.1.0] - 2026-12-01\n\n# Added\n\n- One.\n"
	for name, c := range map[string]struct {
		version, log string
		change       func(*testing.T, string)
		want         error
	}{
		"fine":             {version: "0.1.0", log: log},
		"pre-release":      {version: "0.1.0-rc.1", log: strings.Replace(log, "0.1.0", "0.1.0-rc.1", 1)},
		"version":          {version: "0.1", log: log, want: errVersion},
		"prefix":           {version: "v0.1.0", log: log, want: errVersion},
		"no entry":         {version: "0.2.0", log: log, want: errNoEntry},
		"no date":          {version: "0.1.0", log: "## [0.1.0]\n\n- One.\n", want: errNoDate},
		"tagged":           {version: "0.1.0", log: log, want: errTagged, change: func(t *testing.T, root string) { git(t, root, "tag", "v0.1.0") }},
		"uncommitted file": {version: "0.1.0", log: log, want: errDirty, change: func(t *testing.T, root string) { _ = os.WriteFile(filepath.Join(root, "x"), nil, 0o644) }},
	} {
		t.Run(name, func(t *testing.T) {
			root := history(t, c.version, c.log)
			if c.change != nil {
				c.change(t, root)
			}
			err := tag(t.Context(), root, io.Discard)
			if !errors.Is(err, c.want) {
				t.Fatalf("%v, want %v", err, c.want)
			}
			if err != nil {
				return
			}
			if text := git(t, root, "tag", "--list", "--format=%(objecttype) %(contents)"); text != "tag Psyche "+c.version+"\n\n# Added\n\n- One." {
				t.Errorf("got %q; want \"tag Psyche \" + c.version + \"\\n\\n# Added\\n\\n- One.\"", text)
			}
			if s, err := readSource(t.Context(), root); err != nil || s.version != c.version || s.tag != "v"+c.version {
				t.Errorf("got %+v, %v; want nil error and s.version == c.version and s.tag == \"v\" + c.version", s, err)
			}
		})
	}
}

func TestReadSource(t *testing.T) {
	root := history(t, "0.1.0", "")
	s, err := readSource(t.Context(), root)
	if err != nil || s.version != "0.1.0-dev" || s.tag != "" || len(s.commit) != 40 || time.Since(s.time).Abs() > time.Hour {
		t.Errorf("got %+v, %v; want nil error and s.version == \"0.1.0-dev\" and s.tag == \"\" and len(s.commit) == 40 and time.Since(s.time).Abs() <= time.Hour", s, err)
	}
	if err := os.WriteFile(filepath.Join(root, "CHANGELOG.md"), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := readSource(t.Context(), root); !errors.Is(err, errDirty) {
		t.Error(err)
	}
}

// TestPack checks that the bytes of archives depend neither on the order of the files nor on the
// properties of the files on disk.
func TestPack(t *testing.T) {
	dir := t.TempDir()
	onDisk := filepath.Join(dir, "x")
	modified := time.Unix(1e9, 0)
	for _, suffix := range []string{".tar.gz", ".zip"} {
		var first []byte
		for i, mode := range []os.FileMode{0o600, 0o755} {
			_ = os.Remove(onDisk)
			if err := os.WriteFile(onDisk, []byte("on disk"), mode); err != nil {
				t.Fatal(err)
			}
			files := []file{{name: "bin/b", data: []byte("b"), exec: true}, {name: "a", path: onDisk}}
			if i == 1 {
				slices.Reverse(files)
			}
			name := filepath.Join(dir, "archive"+suffix)
			if err := pack(name, "folder", files, modified); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if i == 1 && !bytes.Equal(data, first) {
				t.Errorf("%s: the bytes differ", suffix)
			}
			first = data
		}
		if got, want := list(t, suffix, first), "folder/a 644 on disk\nfolder/bin/b 755 b\n"; got != want {
			t.Errorf("%s: %q, want %q", suffix, got, want)
		}
	}
}

// list returns the names, modes and contents in an archive.
func list(t *testing.T, suffix string, data []byte) string {
	t.Helper()
	var out bytes.Buffer
	add := func(name string, mode os.FileMode, r io.Reader) {
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = out.WriteString(name + " " + string([]byte{'0' + byte(mode>>6&7), '0' + byte(mode>>3&7), '0' + byte(mode&7)}) + " " + string(text) + "\n")
	}
	if suffix == ".zip" {
		archive, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range archive.File {
			r, err := f.Open()
			if err != nil {
				t.Fatal(err)
			}
			add(f.Name, f.Mode(), r)
		}
		return out.String()
	}
	zipped, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	archive := tar.NewReader(zipped)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return out.String()
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Uname != "" || header.ModTime.Unix() != 1e9 {
			t.Errorf("got %+v; want header.Uid == 0 and header.Uname == \"\" and header.ModTime.Unix() == 1e9", header)
		}
		add(header.Name, header.FileInfo().Mode(), archive)
	}
}

func TestParseLdd(t *testing.T) {
	const start = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibm.so.6 => /lib/libm.so.6 (0x1)\n\t/lib64/ld-linux-x86-64.so.2 (0x2)\n"
	for _, c := range []struct {
		text string
		want []string
		err  error
	}{
		{start + "\tlibz.so.1 => /lib/libz.so.1 (0x3)\n\tlibc10.so => /opt/libc10.so (0x4)\n\tlibcrypt.so.1 => /lib/libcrypt.so.1 (0x5)\n", []string{"libc10.so", "libcrypt.so.1", "libz.so.1"}, nil},
		{start + "\tlibz.so.1 => not found\n", nil, errNotFound},
		{start + "\tlibtorch_cuda.so => /opt/libtorch_cuda.so (0x3)\n", nil, errCUDA},
		{start + "\t../libz.so.1 => /lib/libz.so.1 (0x3)\n", nil, errNotFound},
		{"\tstatically linked\n", nil, nil},
	} {
		all, err := parseLdd(c.text)
		var names []string
		for _, l := range all {
			names = append(names, l.name)
		}
		if !slices.Equal(names, c.want) || !errors.Is(err, c.err) {
			t.Errorf("%q: got %v, %v; want %v and error %v", c.text, names, err, c.want, c.err)
		}
	}
}

func TestMinimalGlibc(t *testing.T) {
	gcc, err := exec.LookPath("gcc")
	if err != nil || native.system != "linux" {
		t.Skipf("gcc on Linux makes the libraries: %v", err)
	}
	dir := t.TempDir()
	var paths []string
	for name, text := range map[string]string{
		"none.so": "int x;", // needs no library, so it has no table of versions
		"one.so":  "int puts(const char *); int f(void) { return puts(\"\"); }",
	} {
		source, to := filepath.Join(dir, name+".c"), filepath.Join(dir, name)
		if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := output(t.Context(), dir, nil, gcc, "-shared", "-fPIC", "-nostartfiles", "-o", to, source); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, to)
	}
	if version, err := minimalGlibc(paths); err != nil || version == "2.0" || !strings.HasPrefix(version, "2.") {
		t.Errorf("got %q, %v; want nil error and version != \"2.0\" and text that begins with \"2.\"", version, err)
	}
	if _, err := minimalGlibc([]string{filepath.Join(dir, "one.so.c")}); err == nil {
		t.Error("a text is accepted as a library")
	}
}

func TestSharedNeedsLicences(t *testing.T) {
	dir := t.TempDir()
	all := []library{{name: "libz.so.1", path: filepath.Join(dir, "libz.so.1")}}
	if _, err := shared(all, ""); !errors.Is(err, errNoLicence) {
		t.Error(err)
	}
	if _, err := shared(all, filepath.Join(dir, "none")); !errors.Is(err, errNoLicence) {
		t.Error(err)
	}
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	files, err := shared(all, text)
	if err != nil || files[0].name != "lib/psyche/libtorch/libz.so.1" || files[1].path != text {
		t.Errorf("got %v, %v; want nil error and files[0].name == \"lib/psyche/libtorch/libz.so.1\" and files[1].path == text", files, err)
	}
}

func TestInstallerSettings(t *testing.T) {
	for _, c := range []struct {
		script, value, want string
		err                 error
	}{
		{"a\nx=''\nb\n", "https://example.com/v1", "a\nx='https://example.com/v1'\nb\n", nil},
		{"a\nx=''\nb\n", "'; false", "", errSetting},
		{"a\n", "1", "", errSetting},
		{"\nx=''\n\nx=''\n", "1", "", errSetting},
	} {
		if got, err := installer(c.script, []setting{{"x", c.value}}); got != c.want || !errors.Is(err, c.err) {
			t.Errorf("%q: got %q, %v; want %q and error %v", c.script, got, err, c.want, c.err)
		}
	}
}

// TestKey writes a key and signs with it. Deriving the key of a file takes seconds and a gigabyte.
func TestKey(t *testing.T) {
	if testing.Short() {
		t.Skip("derives keys from passwords, which takes seconds")
	}
	path := filepath.Join(t.TempDir(), "key")
	if err := newKey(path, "secret", io.Discard); err != nil {
		t.Fatal(err)
	}
	if err := newKey(path, "secret", io.Discard); !errors.Is(err, os.ErrExist) {
		t.Errorf("overwriting a key: %v", err)
	}
	s, err := readSigner(path, "secret")
	if err != nil {
		t.Fatal(err)
	}
	signature, err := s.sign([]byte("sums"), "comment")
	if err != nil {
		t.Fatal(err)
	}
	public, err := minisign.PublicKeyFromFile(path + ".pub")
	if err != nil || !minisign.Verify(public, []byte("sums"), signature) || minisign.Verify(public, []byte("other"), signature) {
		t.Errorf("%v", err)
	}
}

func TestInventory(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	libraries := []library{{name: "libz.so.1", from: debian{"zlib1g", "1:1.2+dfsg-1", "zlib", "1:1.2+dfsg-1"}}, {name: "libown.so"}}
	data, err := inventory(source{version: "0.1.0", time: time.Unix(1e9, 0).UTC()}, "psyche", self, libraries)
	if err != nil {
		t.Fatal(err)
	}
	var bom struct {
		BOMFormat string `json:"bomFormat"`
		Metadata  struct {
			Timestamp string
			Component struct{ Name, Version string }
		}
		Components []struct {
			PackageURL string `json:"purl"`
		}
	}
	if err := json.Unmarshal(data, &bom); err != nil {
		t.Fatal(err)
	}
	if bom.BOMFormat != "CycloneDX" || bom.Metadata.Timestamp != "2001-09-09T01:46:40Z" || bom.Metadata.Component.Version != "0.1.0" {
		t.Errorf("got %+v; want bom.BOMFormat == \"CycloneDX\" and bom.Metadata.Timestamp == \"2001-09-09T01:46:40Z\" and bom.Metadata.Component.Version == \"0.1.0\"", bom)
	}
	for _, want := range []string{"pkg:golang/std@", "pkg:golang/aead.dev/minisign@v", "pkg:deb/debian/zlib1g@1%3A1.2%2Bdfsg-1?arch=amd64", "pkg:generic/libown.so"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("no %s in %s", want, data)
		}
	}
}

func TestRun(t *testing.T) {
	for _, args := range [][]string{nil, {"nonsense"}} {
		if err := run(context.Background(), args, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%v: got %v; want error errUsage", args, err)
		}
	}
	root := history(t, "0.1.0", "## [0.1.0]\n\n- One.\n")
	if err := run(t.Context(), []string{"build", "-root", root, "-platforms", "linux-arm64"}, io.Discard); !errors.Is(err, errNative) {
		t.Error(err)
	}
	out := t.TempDir()
	if err := os.WriteFile(filepath.Join(out, "x"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if native == (platform{"linux", "amd64"}) {
		if err := run(t.Context(), []string{"build", "-root", root, "-out", out}, io.Discard); !errors.Is(err, errNotEmpty) {
			t.Error(err)
		}
	}
}
