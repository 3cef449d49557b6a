package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	sumsName      = "SHA256SUMS"
	signatureName = "SHA256SUMS.minisig"
	installerName = "install.sh"
)

var (
	errNotEmpty = errors.New("the folder is not empty")
	errNative   = errors.New("the release must be built on linux-amd64, and contain it")
)

// builder builds the files of a release.
type builder struct {
	source
	options options
	work    string // folder for temporary files
	log     io.Writer
	glibc   string // version of the C library that the client needs; empty without a client
}

// build builds a release into an empty folder.
func build(ctx context.Context, o options, out io.Writer) (err error) {
	linux := platform{"linux", "amd64"}
	if native != linux || !slices.Contains(o.platforms, linux) {
		return fmt.Errorf("%w; this is %s", errNative, native)
	}
	src, err := readSource(ctx, o.root)
	if err != nil {
		return err
	}
	notes, err := releaseNotes(src)
	if err != nil {
		return err
	}
	key, err := readSigner(o.key, os.Getenv(passwordVariable))
	if err != nil {
		return err
	}
	if err := emptyFolder(o.out); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "psyche-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	b := &builder{source: src, options: o, work: work, log: out}
	fmt.Fprintf(out, "release: %s from commit %s\n", src.version, src.commit)
	if err := b.programs(ctx); err != nil {
		return err
	}
	if err := b.debs(ctx); err != nil {
		return err
	}
	return b.finish(key, notes)
}

// releaseNotes returns the version's entry of CHANGELOG.md. The entry of a tagged commit needs a date.
func releaseNotes(s source) (string, error) {
	changelog, err := os.ReadFile(filepath.Join(s.root, "CHANGELOG.md"))
	if err != nil {
		return "", err
	}
	if s.tag != "" {
		return releasedEntry(string(changelog), s.version)
	}
	text, _, err := entryOf(string(changelog), strings.TrimSuffix(s.version, "-dev"))
	return text, err
}

// emptyFolder creates a folder, unless it exists and is empty.
func emptyFolder(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	if len(entries) > 0 {
		return fmt.Errorf("%s: %w; remove it, or pass another folder with -out", path, errNotEmpty)
	}
	return nil
}

// programs builds the archives and their inventories.
func (b *builder) programs(ctx context.Context) error {
	verifier, err := b.verifier(ctx, b.work)
	if err != nil {
		return err
	}
	linux := filepath.Join(b.work, native.String(), "psyche")
	if err := b.compile(ctx, native, "0", "psyche", linux); err != nil {
		return err
	}
	pages, err := manual(ctx, "psyche", linux)
	if err != nil {
		return err
	}
	for _, p := range b.options.platforms {
		files, err := b.papers(ctx, p, "0", "psyche")
		if err != nil {
			return err
		}
		files = append(files, verifier...)
		name, suffix := "psyche", ".tar.gz"
		if p.system == "windows" {
			name, suffix = "psyche.exe", ".zip"
		} else {
			files = append(files, pages...)
		}
		executable := filepath.Join(b.work, p.String(), name)
		if p != native {
			if err := b.compile(ctx, p, "0", "psyche", executable); err != nil {
				return err
			}
		}
		files = append(files, file{name: "bin/" + name, path: executable, exec: true})
		if err := b.archive("psyche", p, suffix, executable, files, nil); err != nil {
			return err
		}
	}
	if !b.options.client {
		return nil
	}
	return b.trainer(ctx)
}

// trainer builds the archive of the client with libtorch.
func (b *builder) trainer(ctx context.Context) error {
	executable := filepath.Join(b.work, native.String(), "psyche-client")
	if err := b.compile(ctx, native, "1", "psyche-client", executable); err != nil {
		return err
	}
	// Kept, because the script compiles only after changes.
	shim := filepath.Join(b.root, "build", "portable", "libpsyche_torch.so")
	if err := os.MkdirAll(filepath.Dir(shim), 0o755); err != nil {
		return err
	}
	if _, err := output(ctx, b.root, []string{"SHIM=" + shim, "SHIM_RPATH=$ORIGIN/libtorch"}, filepath.Join(b.root, "scripts", "build-shim.sh")); err != nil {
		return err
	}
	libraries, err := resolve(ctx, shim, librarySearch())
	if err != nil {
		return err
	}
	if err := findPackages(ctx, libraries); err != nil {
		return err
	}
	files, err := shared(libraries, b.options.extra)
	if err != nil {
		return err
	}
	binaries := []string{executable, shim}
	for _, l := range libraries {
		binaries = append(binaries, l.path)
	}
	if b.glibc, err = minimalGlibc(binaries); err != nil {
		return err
	}
	papers, err := b.papers(ctx, native, "1", "psyche-client")
	if err != nil {
		return err
	}
	pages, err := manual(ctx, "psyche-client", executable)
	if err != nil {
		return err
	}
	files = slices.Concat(files, papers, pages, []file{
		{name: "bin/psyche-client", path: executable, exec: true},
		{name: "lib/psyche/libpsyche_torch.so", path: shim},
	})
	return b.archive("psyche-client", native, ".tar.gz", executable, files, libraries)
}

// librarySearch returns the folders in which the client's libraries are searched first. Debian's
// OpenBLAS that shares libtorch's threads is better than its default.
func librarySearch() []string {
	var folders []string
	for _, variable := range []string{"LIBTORCH_LIB", "LIBTORCH"} {
		if value := os.Getenv(variable); value != "" {
			folders = append(folders, filepath.Join(value, "lib"), value)
		}
	}
	return append(folders, "/usr/lib/x86_64-linux-gnu/openblas-openmp")
}

// archive writes an archive and its inventory.
func (b *builder) archive(program string, p platform, suffix, executable string, files []file, libraries []library) error {
	folder := program + "-" + b.version + "-" + p.String()
	if err := pack(filepath.Join(b.options.out, folder+suffix), folder, files, b.time); err != nil {
		return err
	}
	list, err := inventory(b.source, program, executable, libraries)
	if err != nil {
		return fmt.Errorf("%s: %w", executable, err)
	}
	if err := os.WriteFile(filepath.Join(b.options.out, folder+".cdx.json"), list, 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintf(b.log, "release: %s%s\n", folder, suffix)
	return err
}

// debs builds the Debian packages. A development version sorts before its release.
func (b *builder) debs(ctx context.Context) error {
	if !b.options.packages {
		return nil
	}
	version := strings.Replace(b.version, "-", "~", 1)
	_, err := output(ctx, b.root, []string{"VERSION=" + version, "GOFLAGS=-buildvcs=false -tags=netgo,osusergo", "COMMIT=" + b.commit, "TAG=" + b.tag},
		filepath.Join(b.root, "packaging", "deb", "build.sh"), b.options.out)
	return err
}

// finish writes the installer, the notes, the checksums and the signature.
func (b *builder) finish(key signer, notes string) error {
	script, err := os.ReadFile(filepath.Join(b.root, "scripts", installerName))
	if err != nil {
		return err
	}
	text, err := installer(string(script), []setting{{"version", b.version}, {"releases", b.options.base}, {"public_key", key.public}, {"client_glibc", b.glibc}})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.options.out, installerName), []byte(text), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.options.out, "RELEASE-NOTES.md"), []byte(notes+"\n"), 0o644); err != nil {
		return err
	}
	if err := seal(b.options.out, key, "Psyche "+b.version+" from commit "+b.commit); err != nil {
		return err
	}
	if key.public == "" {
		_, err = fmt.Fprintln(b.log, "release: no key, so there is no signature; pass -key")
	}
	return err
}

// seal writes the checksums of all files in a folder, and their signature if there is a key.
func seal(folder string, key signer, comment string) error {
	sums, err := checksums(folder)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, sumsName), sums, 0o644); err != nil {
		return err
	}
	if key.public == "" {
		return nil
	}
	signature, err := key.sign(sums, comment)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, signatureName), signature, 0o644)
}

// checksums returns the SHA-256 of each file in a folder, in the format of sha256sum.
func checksums(folder string) ([]byte, error) {
	entries, err := os.ReadDir(folder) // sorted
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, entry := range entries {
		if name := entry.Name(); name != sumsName && name != signatureName {
			sum, err := checksum(filepath.Join(folder, name))
			if err != nil {
				return nil, err
			}
			fmt.Fprintf(&out, "%x  %s\n", sum, name)
		}
	}
	return out.Bytes(), nil
}

func checksum(path string) ([]byte, error) {
	opened, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	hash := sha256.New()
	_, err = io.Copy(hash, opened)
	if err = errors.Join(err, opened.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return hash.Sum(nil), nil
}
