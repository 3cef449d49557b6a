package main

import (
	"bytes"
	"cmp"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// libraryFolder is the folder of the libraries in the client's archive. Package learn/torch and the
// shim's path in trainer contain its last element.
const libraryFolder = "lib/psyche/libtorch"

var (
	errNotFound  = errors.New("library not found")
	errNoLicence = errors.New("no licence")
	errCUDA      = errors.New("this libtorch supports CUDA, and the archive is for CPUs")
)

// library is a shared library of the client's archive.
type library struct {
	name string // that other libraries use for it
	path string
	from debian // zero if the library is in no package
}

// debian is a package of the Debian release on which the client was built.
type debian struct{ name, version, source, sourceVersion string }

// ofSystem matches the parts of the C library. An archive cannot contain them, because the dynamic
// linker, which belongs to them, has a fixed path.
var ofSystem = regexp.MustCompile(`^(linux-vdso|ld-linux[a-z0-9-]*|libc|libm|libdl|libpthread|librt|libresolv|libutil|libanl|libnss_[a-z]+)\.so(\.\d+)?$`)

// resolve returns the libraries that an ELF file needs, directly and indirectly, without the C
// library. search lists the first folders to search.
func resolve(ctx context.Context, path string, search []string) ([]library, error) {
	text, err := output(ctx, "", []string{"LD_LIBRARY_PATH=" + strings.Join(search, ":"), "LC_ALL=C"}, "ldd", path)
	if err != nil {
		return nil, err
	}
	return parseLdd(text)
}

// parseLdd parses the output of ldd.
func parseLdd(text string) ([]library, error) {
	var all []library
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(strings.TrimSpace(line), " => ")
		if !ok || ofSystem.MatchString(name) {
			continue
		}
		path, _, _ := strings.Cut(rest, " (")
		switch {
		case !filepath.IsAbs(path):
			return nil, fmt.Errorf("%s: %w (%s); install it, or set LIBTORCH to the folder of libtorch", name, errNotFound, rest)
		case name != filepath.Base(name):
			return nil, fmt.Errorf("%s: %w; want a name without a folder", name, errNotFound)
		case strings.HasPrefix(name, "libtorch_cuda"):
			return nil, fmt.Errorf("%w (%s); set LIBTORCH to a libtorch for CPUs, or run make cuda-bundle", errCUDA, path)
		}
		all = append(all, library{name: name, path: path})
	}
	slices.SortFunc(all, func(a, b library) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// minimalGlibc returns the newest version of the C library that one of the files needs, such as 2.36.
func minimalGlibc(paths []string) (string, error) {
	newest := 0
	for _, path := range paths {
		needs, err := versionNeeds(path)
		if err != nil {
			return "", fmt.Errorf("%s: %w", path, err)
		}
		for _, need := range needs {
			for _, dep := range need.Needs {
				minor, ok := strings.CutPrefix(dep.Dep, "GLIBC_2.")
				if !ok {
					continue
				}
				minor, _, _ = strings.Cut(minor, ".")
				if n, err := strconv.Atoi(minor); err == nil {
					newest = max(newest, n)
				}
			}
		}
	}
	return "2." + strconv.Itoa(newest), nil
}

// versionNeeds returns the versions of other libraries that an ELF file needs.
func versionNeeds(path string) (needs []elf.DynamicVersionNeed, err error) {
	opened, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	if table, err := opened.DynValue(elf.DT_VERNEED); err != nil || len(table) == 0 {
		return nil, err
	}
	return opened.DynamicVersionNeeds()
}

// findPackages sets the packages of libraries. Libraries outside all packages keep the zero value.
func findPackages(ctx context.Context, all []library) error {
	if _, err := exec.LookPath("dpkg-query"); err != nil {
		return nil //nolint:nilerr // this system has no packages, so all libraries are outside of them
	}
	paths := make([]string, len(all))
	search := []string{"--search"}
	for i, l := range all {
		real, err := filepath.EvalSymlinks(l.path)
		if err != nil {
			return err
		}
		paths[i] = real
		// A package may list a file below /lib, which is now a link to /usr/lib.
		search = append(search, real, strings.TrimPrefix(real, "/usr"))
	}
	command := exec.CommandContext(ctx, "dpkg-query", search...)
	command.Env = append(os.Environ(), "LC_ALL=C")
	text, err := command.Output() // fails if one of the paths is unknown, and prints the others
	if failed := (*exec.ExitError)(nil); err != nil && !errors.As(err, &failed) {
		return err
	}
	owners := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if owner, path, ok := strings.Cut(strings.TrimSpace(line), ": "); ok && !strings.HasPrefix(owner, "diversion") {
			owner, _, _ = strings.Cut(owner, ",")
			owners[path] = owner
		}
	}
	known, err := describe(ctx, slices.Sorted(maps.Values(owners)))
	if err != nil {
		return err
	}
	for i, path := range paths {
		all[i].from = known[cmp.Or(owners[path], owners[strings.TrimPrefix(path, "/usr")])]
	}
	return nil
}

// describe returns the versions and sources of installed packages.
func describe(ctx context.Context, names []string) (map[string]debian, error) {
	known := map[string]debian{}
	if len(names) == 0 {
		return known, nil
	}
	args := append([]string{"--show", "--showformat=${binary:Package}\t${Package}\t${Version}\t${source:Package}\t${source:Version}\n"}, slices.Compact(names)...)
	text, err := output(ctx, "", nil, "dpkg-query", args...)
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		parts := strings.Split(strings.TrimSpace(line), "\t")
		if len(parts) != 5 {
			return nil, fmt.Errorf("dpkg-query: %q, want five fields", line)
		}
		known[parts[0]] = debian{parts[1], parts[2], parts[3], parts[4]}
	}
	return known, nil
}

// shared returns the files of libraries, their licences, and a list of their packages. extra is a
// file with the licences of libraries outside all packages; empty means that there are none.
func shared(all []library, extra string) ([]file, error) {
	const folder = "share/doc/psyche-client/libraries/"
	var files []file
	var list bytes.Buffer
	fmt.Fprintln(&list, "# library\tpackage\tversion\tsource\tversion of the source")
	known := map[string]bool{}
	for _, l := range all {
		files = append(files, file{name: libraryFolder + "/" + l.name, path: l.path})
		fmt.Fprintf(&list, "%s\t%s\t%s\t%s\t%s\n", l.name, l.from.name, l.from.version, l.from.source, l.from.sourceVersion)
		from, to := extra, "others.txt"
		if l.from.name != "" {
			from, to = filepath.Join("/usr/share/doc", l.from.name, "copyright"), l.from.name+".txt"
		}
		if from == "" {
			return nil, fmt.Errorf("%s: %w; pass a file with the licences of libraries outside Debian packages: -library-licences FILE", l.path, errNoLicence)
		}
		if known[to] {
			continue
		}
		if _, err := os.Stat(from); err != nil {
			return nil, fmt.Errorf("%s: %w: %w", l.path, errNoLicence, err)
		}
		known[to] = true
		files = append(files, file{name: folder + to, path: from})
	}
	// The packages' licences refer to these texts.
	common, err := filepath.Glob("/usr/share/common-licenses/*")
	if err != nil {
		return nil, err
	}
	for _, path := range common {
		files = append(files, file{name: folder + "common-licenses/" + filepath.Base(path), path: path})
	}
	return append(files, file{name: folder + "packages.tsv", data: list.Bytes()}), nil
}
