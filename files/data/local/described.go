package local

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/psyche-go/psyche/files/data/manifest"
)

// ErrDescribed means that token files differ from the data.json in their folder.
var ErrDescribed = errors.New("different from " + manifest.Name)

// description is the part of a data.json that concerns the files to read.
type description struct {
	path      string // of the data.json
	tokenSize int
	files     map[string]manifest.File // by path; only files to read
}

// describe finds the data.json of a folder of token files, or of a single one. It returns nil if
// there is none for these files.
func describe(at string) (*description, error) {
	folder, single := at, false
	if info, err := os.Stat(at); err == nil && info.Mode().IsRegular() {
		folder, single = filepath.Dir(at), true
	}
	m, found, err := manifest.Read(folder)
	if err != nil {
		return nil, err
	}
	entries, top := m.Files, folder
	if !found {
		// Held-out tokens are one folder below their data.json.
		absolute, err := filepath.Abs(folder)
		if err != nil || filepath.Base(absolute) != manifest.HeldOutFolder {
			return nil, err
		}
		top = filepath.Dir(absolute)
		if m, found, err = manifest.Read(top); err != nil || !found {
			return nil, err
		}
		entries = m.HeldOut
	}
	d := &description{path: filepath.Join(top, manifest.Name), tokenSize: m.TokenSizeInBytes, files: map[string]manifest.File{}}
	for _, entry := range entries {
		path := filepath.Join(folder, filepath.Base(filepath.FromSlash(entry.Name)))
		if !single || path == filepath.Clean(at) {
			d.files[path] = entry
		}
	}
	if len(d.files) == 0 {
		return nil, nil // it describes other files
	}
	return d, nil
}

// check compares the open files with their description. It does not compare hashes, because it
// would have to read all files to compute them.
func (d *description) check(files []*file, tokenSize int) error {
	if tokenSize != d.tokenSize {
		return fmt.Errorf("%w: %s sets %d bytes per token, the token size in use is %d; set the token size to %d (--token-size, or token_size_in_bytes of a run), or make the data again with: psyche data tokenize --token-size %d",
			ErrDescribed, d.path, d.tokenSize, tokenSize, d.tokenSize, tokenSize)
	}
	seen := 0
	for _, file := range files {
		entry, found := d.files[filepath.Clean(file.path)]
		if !found {
			return fmt.Errorf("token file %s is in the folder, but %s does not list it; remove one of them", file.path, d.path)
		}
		seen++
		if want := entry.Tokens * uint64(d.tokenSize); uint64(file.size) != want {
			return fmt.Errorf("token file %s is %w: the file has %d bytes, %s lists %d; get the file again if it is truncated or replaced, or make the data again",
				file.path, ErrDescribed, file.size, d.path, want)
		}
	}
	if seen < len(d.files) {
		return d.missing(files)
	}
	return nil
}

// missing returns an error for the first described file that is missing.
func (d *description) missing(files []*file) error {
	var names []string
	for path := range d.files {
		if !slices.ContainsFunc(files, func(file *file) bool { return filepath.Clean(file.path) == path }) {
			names = append(names, path)
		}
	}
	slices.Sort(names)
	return fmt.Errorf("token file %s is missing, but %s lists it: %w; get it again, or make the data again", names[0], d.path, ErrDescribed)
}

// Fingerprint identifies the tokens: the size of a token, the length of every file in reading
// order, and its hash if a data.json contains it. Names do not matter.
func (f *Folder) Fingerprint() [sha256.Size]byte {
	hash := sha256.New()
	add := func(number uint64, text string) {
		var head [16]byte
		binary.LittleEndian.PutUint64(head[:], number)
		binary.LittleEndian.PutUint64(head[8:], uint64(len(text)))
		_, _ = hash.Write(append(head[:], text...)) // does not fail
	}
	add(uint64(f.tokenSize), "")
	for _, file := range f.files {
		sum := ""
		if f.described != nil {
			sum = f.described.files[filepath.Clean(file.path)].SHA256
		}
		add(uint64(file.size), sum)
	}
	return [sha256.Size]byte(hash.Sum(nil))
}
