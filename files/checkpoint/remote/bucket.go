package remote

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/files/checkpoint"
	"github.com/psyche-go/psyche/files/objstore"
	"lukechampine.com/blake3"
)

// Limits for reading from a bucket.
const (
	maxBucketFiles    = 20_000
	maxBucketManifest = 4 << 20 // bytes
	maxBucketBytes    = 4 << 40 // of all files together
)

// manifestObject is the object that completes a checkpoint in a bucket. It is written last, and
// contains the versions of all other objects.
const manifestObject = "manifest.json"

// errOtherCheckpoint means that a location has another checkpoint under the same name.
var errOtherCheckpoint = errors.New("a different checkpoint exists under this name")

// Bucket is a location in an object store. Upload writes each checkpoint to its own folder below
// Prefix. For Facts and Download, Prefix is such a folder.
type Bucket struct {
	Store    objstore.Store
	Name     string // of the bucket
	Prefix   string // may be empty
	CacheDir string // folder for the files of Download
	MaxBytes int64  // maximum size of a download; 0: 4 TiB

	Space diskspace.Probe // of CacheDir; nil: diskspace.Of
}

// String returns the location in a readable form.
func (b Bucket) String() string { return "gs://" + path.Join(b.Name, b.Prefix) }

// Folder returns the location of one checkpoint that Upload writes below this one.
func (b Bucket) Folder(runID string, step uint32) Bucket {
	b.Prefix = path.Join(b.Prefix, folderName(runID, step))
	return b
}

// folderName returns the run ID, with invalid characters replaced, and the step.
func folderName(runID string, step uint32) string {
	safe := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.", r) {
			return r
		}
		return '_'
	}, runID)
	return safe + "-step" + strconv.FormatUint(uint64(step), 10)
}

// bucketManifest is the content of manifestObject.
type bucketManifest struct {
	Metadata struct {
		Timestamp int64  `json:"timestamp"` // Unix seconds
		Epoch     uint32 `json:"epoch"`
		Step      uint32 `json:"step"`
		RunID     string `json:"run_id"`
	} `json:"metadata"`
	Files []bucketFile `json:"files"`
}

// bucketFile is one file of the checkpoint, with the version that belongs to it.
type bucketFile struct {
	Name       string     `json:"filename"`
	Generation generation `json:"generation"`
	Size       int64      `json:"size_bytes"`
}

// generation is the version of an object. In JSON it is a number if its text is an integer, and a
// string otherwise.
type generation string

// MarshalJSON implements json.Marshaler.
func (g generation) MarshalJSON() ([]byte, error) {
	if _, err := strconv.ParseInt(string(g), 10, 64); err == nil {
		return []byte(g), nil
	}
	return json.Marshal(string(g))
}

// UnmarshalJSON implements json.Unmarshaler.
func (g *generation) UnmarshalJSON(raw []byte) error {
	if len(raw) > 0 && raw[0] == '"' {
		return json.Unmarshal(raw, (*string)(g))
	}
	var number json.Number
	err := json.Unmarshal(raw, &number)
	*g = generation(number)
	return err
}

// object returns the version of a file in the manifest.
func (b Bucket) object(f bucketFile) objstore.Object {
	return objstore.Object{Name: path.Join(b.Prefix, f.Name), Size: f.Size, Generation: string(f.Generation)}
}

// Upload writes the checkpoint of a folder to a folder of the bucket and returns the prefix of that
// folder. Readers never see a part of it, because the manifest is written last. Upload does not
// change a checkpoint that exists already. Concurrent uploads of the same checkpoint do not
// interfere with each other.
func (b Bucket) Upload(ctx context.Context, dir string, f checkpoint.Facts, progress Progress) (string, error) {
	at := b.Folder(f.RunID, f.Step)
	done, err := at.isThere(ctx, f)
	if done || err != nil {
		return at.Prefix, err
	}
	files, err := filesOf(dir)
	if err != nil {
		return "", err
	}
	var m bucketManifest
	m.Metadata.Timestamp, m.Metadata.Epoch, m.Metadata.Step, m.Metadata.RunID = time.Now().Unix(), f.Epoch, f.Step, f.RunID
	var sent, all int64
	for _, file := range files {
		info, err := os.Stat(file.Local)
		if err != nil {
			return "", fmt.Errorf("read checkpoint: %w", err)
		}
		m.Files = append(m.Files, bucketFile{Name: file.Path, Size: info.Size()})
		all += info.Size()
	}
	for i := range m.Files {
		o, err := at.put(ctx, m.Files[i].Name, files[i].Local, m.Files[i].Size, func(n int64) {
			if sent += n; progress != nil {
				progress(sent, all)
			}
		})
		if err != nil {
			return "", err
		}
		m.Files[i].Generation = generation(o.Generation)
	}
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return "", fmt.Errorf("encode %s: %w", manifestObject, err)
	}
	_, err = b.Store.Put(ctx, path.Join(at.Prefix, manifestObject), bytes.NewReader(text), int64(len(text)), objstore.IfAbsent())
	if errors.Is(err, objstore.ErrPrecondition) { // another client was faster, with the same files
		if done, err = at.isThere(ctx, f); err == nil && !done {
			err = fmt.Errorf("%w: %s", errOtherCheckpoint, at)
		}
	}
	return at.Prefix, err
}

// isThere reports whether the folder contains the complete checkpoint.
func (b Bucket) isThere(ctx context.Context, f checkpoint.Facts) (bool, error) {
	there, err := b.Facts(ctx)
	switch {
	case errors.Is(err, checkpoint.ErrNoFacts), errors.Is(err, objstore.ErrNotFound):
		return false, nil
	case err != nil:
		return false, err
	case there != f:
		return false, fmt.Errorf("%w: %s has digest %.16s, want %.16s", errOtherCheckpoint, b, there.Digest, f.Digest)
	}
	_, err = b.Store.Stat(ctx, path.Join(b.Prefix, manifestObject))
	if errors.Is(err, objstore.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// put writes a file unless it exists with the same content.
func (b Bucket) put(ctx context.Context, name, local string, size int64, count func(int64)) (objstore.Object, error) {
	when := objstore.IfAbsent()
	for {
		o, err := b.putOnce(ctx, name, local, size, when, count)
		if !errors.Is(err, objstore.ErrPrecondition) {
			return o, err
		}
		there, err := b.Store.Stat(ctx, path.Join(b.Prefix, name))
		if err != nil {
			return there, err
		}
		same, err := b.holds(ctx, there, local)
		if same || err != nil {
			return there, err
		}
		when = objstore.IfStill(there)
	}
}

func (b Bucket) putOnce(ctx context.Context, name, local string, size int64, when objstore.Condition, count func(int64)) (objstore.Object, error) {
	file, err := os.Open(local)
	if err != nil {
		return objstore.Object{}, fmt.Errorf("read checkpoint: %w", err)
	}
	defer func() { _ = file.Close() }()
	return b.Store.Put(ctx, path.Join(b.Prefix, name), &counter{file, count}, size, when)
}

// holds reports whether an object has the content of a file.
func (b Bucket) holds(ctx context.Context, o objstore.Object, local string) (bool, error) {
	file, err := os.Open(local)
	if err != nil {
		return false, fmt.Errorf("read checkpoint: %w", err)
	}
	defer func() { _ = file.Close() }()
	if info, err := file.Stat(); err != nil || info.Size() != o.Size {
		return false, err
	}
	content, err := b.Store.Open(ctx, o)
	if err != nil {
		return false, err
	}
	defer func() { _ = content.Close() }()
	var sums [2][]byte
	for i, r := range []io.Reader{file, content} {
		h := blake3.New(32, nil)
		if _, err := io.Copy(h, io.LimitReader(r, o.Size+1)); err != nil {
			return false, fmt.Errorf("compare %s: %w", o.Name, err)
		}
		sums[i] = h.Sum(nil)
	}
	return bytes.Equal(sums[0], sums[1]), nil
}

// counter reports the number of bytes read.
type counter struct {
	io.Reader
	count func(int64)
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	if n > 0 {
		c.count(int64(n))
	}
	return n, err
}

// files returns the files in the folder with their versions. The manifest determines the versions.
// If the folder has no manifest, files returns the current version of each file.
func (b Bucket) files(ctx context.Context) ([]bucketFile, error) {
	files, err := b.manifest(ctx)
	if errors.Is(err, objstore.ErrNotFound) {
		files, err = b.list(ctx)
	}
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(b.MaxBytes, maxBucketBytes)
	var total int64
	var parts []bucketFile
	for _, f := range files {
		if !checkpoint.IsPart(f.Name) {
			continue
		}
		if f.Size < 0 || f.Size > limit-total {
			return nil, fmt.Errorf("%w: %s: %s has %d bytes, the limit for all files together is %d", checkpoint.ErrInvalid, b, f.Name, f.Size, limit)
		}
		total += f.Size
		if slices.ContainsFunc(parts, func(o bucketFile) bool { return o.Name == f.Name }) {
			return nil, fmt.Errorf("%w: %s lists %s twice", checkpoint.ErrInvalid, b, f.Name)
		}
		parts = append(parts, f)
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("%w: %s has no model files", objstore.ErrNotFound, b)
	}
	return parts, nil
}

func (b Bucket) manifest(ctx context.Context) ([]bucketFile, error) {
	o, err := b.Store.Stat(ctx, path.Join(b.Prefix, manifestObject))
	if err != nil {
		return nil, err
	}
	text, err := b.read(ctx, o, maxBucketManifest)
	if err != nil {
		return nil, err
	}
	var m bucketManifest
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("%w: %s/%s: %w", checkpoint.ErrInvalid, b, manifestObject, err)
	}
	if len(m.Files) > maxBucketFiles {
		return nil, fmt.Errorf("%w: %s/%s lists %d files, the limit is %d", checkpoint.ErrInvalid, b, manifestObject, len(m.Files), maxBucketFiles)
	}
	return m.Files, nil
}

func (b Bucket) list(ctx context.Context) ([]bucketFile, error) {
	prefix := ""
	if b.Prefix != "" {
		prefix = b.Prefix + "/"
	}
	objects, err := b.Store.List(ctx, prefix, maxBucketFiles)
	if err != nil {
		return nil, err
	}
	var files []bucketFile
	for _, o := range objects {
		files = append(files, bucketFile{Name: strings.TrimPrefix(o.Name, prefix), Generation: generation(o.Generation), Size: o.Size})
	}
	return files, nil
}

// read returns a small object.
func (b Bucket) read(ctx context.Context, o objstore.Object, limit int64) ([]byte, error) {
	if o.Size > limit {
		return nil, fmt.Errorf("%w: %s has %d bytes, the limit is %d", checkpoint.ErrInvalid, o.Name, o.Size, limit)
	}
	text := make([]byte, o.Size)
	return text, b.Store.ReadAt(ctx, o, text, 0)
}

// Facts returns the facts of the checkpoint in the folder. If no run wrote it, the error is
// checkpoint.ErrNoFacts.
func (b Bucket) Facts(ctx context.Context) (checkpoint.Facts, error) {
	text, found, err := b.file(ctx, checkpoint.FactsFile, maxFacts)
	switch {
	case err != nil:
		return checkpoint.Facts{}, err
	case !found:
		return checkpoint.Facts{}, fmt.Errorf("%w: %s", checkpoint.ErrNoFacts, b)
	}
	return checkpoint.ParseFacts(text)
}

// Config returns the model's config.json.
func (b Bucket) Config(ctx context.Context) ([]byte, error) {
	text, found, err := b.file(ctx, checkpoint.ConfigFile, checkpoint.MaxFileSize)
	if err == nil && !found {
		err = fmt.Errorf("%w: %s has no %s", checkpoint.ErrInvalid, b, checkpoint.ConfigFile)
	}
	return text, err
}

// file returns a small file of the checkpoint in the folder.
func (b Bucket) file(ctx context.Context, name string, limit int64) (text []byte, found bool, err error) {
	files, err := b.files(ctx)
	if err != nil {
		return nil, false, err
	}
	i := slices.IndexFunc(files, func(f bucketFile) bool { return f.Name == name })
	if i < 0 {
		return nil, false, nil
	}
	text, err = b.read(ctx, b.object(files[i]), limit)
	return text, true, err
}

// maxFacts is the maximum size of a FactsFile to read, in bytes. It is larger than the limit in
// checkpoint.ParseFacts, so that the error for a large file comes from there and names that limit.
const maxFacts = 1 << 20

// Download downloads the checkpoint in the folder and returns the local folder. If the checkpoint
// has a manifest, every file has the version in it. A complete earlier download is not repeated.
// Download removes the remains of downloads by killed processes.
func (b Bucket) Download(ctx context.Context, progress Progress) (string, error) {
	files, err := b.files(ctx)
	if err != nil {
		return "", err
	}
	var all, got int64
	h := blake3.New(16, nil)
	for _, f := range files {
		all += f.Size
		_, _ = fmt.Fprintf(h, "%q %q %d\n", f.Name, f.Generation, f.Size) // writing to a hash does not fail
	}
	_, _ = fmt.Fprintf(h, "%q", b.Prefix)
	dir := filepath.Join(b.CacheDir, filepath.Base(b.Name), fmt.Sprintf("%x", h.Sum(nil)))
	// Failing to remove remains of killed processes must not prevent a download.
	_ = checkpoint.RemoveUnfinished(filepath.Dir(dir), isDownload)
	if isWhole(dir, files) {
		return dir, nil
	}
	if err := diskspace.Check(dir, "the files", uint64(all), b.Space); err != nil {
		return "", fmt.Errorf("download %s: %w", b, err)
	}
	err = checkpoint.FillDir(dir, func(temporary string) error {
		for _, f := range files {
			err := b.fetch(ctx, f, filepath.Join(temporary, f.Name), func(n int64) {
				if got += n; progress != nil {
					progress(got, all)
				}
			})
			if err != nil {
				return err
			}
		}
		if isWhole(dir, files) {
			return errFaster
		}
		return nil
	})
	if err != nil && !errors.Is(err, errFaster) {
		return "", fmt.Errorf("download %s: %w", b, diskspace.Explain(err, "nothing was kept; remove other files, and run the command again"))
	}
	return dir, nil
}

// errFaster means that another process has put the same files in place.
var errFaster = errors.New("another process finished the download")

// isDownload reports whether name can be the name of a folder that Download made.
func isDownload(name string) bool {
	return len(name) == 32 && strings.Trim(name, "0123456789abcdef") == ""
}

// isWhole reports whether a folder has all files in full length.
func isWhole(dir string, files []bucketFile) bool {
	for _, f := range files {
		info, err := os.Lstat(filepath.Join(dir, f.Name))
		if err != nil || !info.Mode().IsRegular() || info.Size() != f.Size {
			return false
		}
	}
	return true
}

func (b Bucket) fetch(ctx context.Context, f bucketFile, to string, count func(int64)) error {
	content, err := b.Store.Open(ctx, b.object(f))
	if err != nil {
		return err
	}
	defer func() { _ = content.Close() }()
	file, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	n, err := io.Copy(file, io.LimitReader(&counter{content, count}, f.Size+1))
	if err == nil && n != f.Size {
		err = fmt.Errorf("%w: %s does not have %d bytes", checkpoint.ErrInvalid, f.Name, f.Size)
	}
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}
