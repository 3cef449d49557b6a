package hosting

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/base/meter"
	"github.com/psyche-go/psyche/files/data/prepare"
	"github.com/psyche-go/psyche/files/data/walk"
	"github.com/psyche-go/psyche/files/recipe"
	"github.com/psyche-go/psyche/files/tokenizer"
)

// heldOutShare is the share of the text that is not trained on. The quickstart has the same share, and most
// held-out losses in the reasons of package files/recipe were measured there.
const heldOutShare = 0.01

// textFiles lists the files of the texts.
func textFiles(paths []string) (files []walk.File, err error) {
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, walk.File{Path: path, Inside: filepath.Base(path), Info: info})
			continue
		}
		found, err := walk.Files(path, walk.Options{})
		if err != nil {
			return nil, err
		}
		files = append(files, found.Files...)
	}
	return files, nil
}

// statHash returns the hash of the names, sizes and times of files.
func statHash(files []walk.File) string {
	sum := sha256.New()
	for _, f := range files {
		_, _ = fmt.Fprintf(sum, "%q %d %d\n", f.Inside, f.Info.Size(), f.Info.ModTime().UnixNano())
	}
	return hexOf(sum)
}

// contentHash returns the hash of the names and contents of files.
func (h *host) contentHash(ctx context.Context, files []walk.File) (string, error) {
	var done, all int64
	for _, f := range files {
		all += f.Info.Size()
	}
	m := meter.New(h.Err, "psyche: reading the text")
	defer m.Done()
	sum := sha256.New()
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		file, err := os.Open(f.Path)
		if err != nil {
			return "", fmt.Errorf("read the text: %w; make the file readable, or move it away", err)
		}
		_, _ = fmt.Fprintf(sum, "%q %d\n", f.Inside, f.Info.Size())
		n, err := io.Copy(sum, file)
		if err := errors.Join(err, file.Close()); err != nil {
			return "", fmt.Errorf("read the text: %w", err)
		}
		done += n
		m.At(done, all)
	}
	return hexOf(sum), nil
}

func hexOf(sum hash.Hash) string { return hex.EncodeToString(sum.Sum(nil)) }

// hold returns the options of package files/data/prepare for the text and its held-out share. It splits a
// single text into two files, because package prepare holds out whole texts.
func (h *host) hold(files []walk.File, local []string) (o prepare.Options, err error) {
	o.Paths, o.HeldOutFraction = local, heldOutShare
	if len(files) != 1 || prepare.HoldsRows(files[0].Path) {
		return o, nil
	}
	file := files[0]
	if packed := []string{".gz", ".zst", ".lz4", ".br"}; slices.Contains(packed, strings.ToLower(filepath.Ext(file.Path))) {
		h.printf("  no held-out text: unpack %s, so that the end can be held out\n", file.Path)
		o.HeldOutFraction = 0
		return o, nil
	}
	if file.Info.Size() < leastText {
		return o, fmt.Errorf("%w: %s has %d bytes; add text", recipe.ErrText, file.Path, file.Info.Size())
	}
	if err := h.removeParts(); err != nil {
		return o, err
	}
	dir := h.path(partsPrefix + h.now.Text[:16])
	train, held := filepath.Join(dir, "train.txt"), filepath.Join(dir, "heldout.txt")
	if _, err := os.Stat(held); err != nil {
		if err := split(file.Path, file.Info.Size(), train, held); err != nil {
			return o, diskspace.Explain(fmt.Errorf("hold out a share of the text: %w", err), "remove other files, and run the command again")
		}
	}
	o.Paths, o.HeldOut, o.HeldOutFraction = []string{train}, []string{held}, 0
	return o, nil
}

// partsPrefix begins the names of the folders with the two parts of a single text.
const partsPrefix = "text-"

// removeParts removes the parts of earlier versions of the text.
func (h *host) removeParts() error {
	entries, err := os.ReadDir(h.Dir)
	for _, entry := range entries {
		if name := entry.Name(); strings.HasPrefix(name, partsPrefix) && name != partsPrefix+h.now.Text[:16] {
			err = errors.Join(err, os.RemoveAll(h.path(name)))
		}
	}
	return err
}

// leastText is the minimum size of a single text in bytes.
const leastText = 1 << 10

// leastHeldOut is the smallest held-out part of a single text in bytes, but at most a tenth is held out.
const leastHeldOut = 16 << 10

// split copies a text to two files, the end to the second. It cuts after a line, or else before a
// character.
func split(path string, size int64, train, held string) error {
	source, err := os.Open(path)
	if err != nil {
		return err
	}
	defer source.Close() //nolint:errcheck // opened for reading only
	cut := size - max(int64(heldOutShare*float64(size)), min(leastHeldOut, size/10))
	if cut, err = boundary(source, cut); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(train), 0o755); err != nil {
		return err
	}
	if err := copyTo(train, io.NewSectionReader(source, 0, cut)); err != nil {
		return err
	}
	return copyTo(held, io.NewSectionReader(source, cut, size-cut))
}

// boundary returns the position of the next line or, without a line break nearby, of the next character.
func boundary(source io.ReaderAt, cut int64) (int64, error) {
	const nearby = 64 << 10
	text, err := io.ReadAll(io.NewSectionReader(source, cut, nearby))
	if err != nil {
		return 0, err
	}
	if i := slices.Index(text, '\n'); i >= 0 && i+1 < len(text) {
		return cut + int64(i) + 1, nil
	}
	if i := slices.IndexFunc(text, utf8.RuneStart); i > 0 {
		cut += int64(i)
	}
	return cut, nil
}

// copyTo writes a file completely, or not at all.
func copyTo(path string, from io.Reader) error {
	unfinished := path + ".new"
	file, err := os.Create(unfinished)
	if err != nil {
		return err
	}
	buffer := bufio.NewWriter(file)
	_, err = io.Copy(buffer, from)
	if err := errors.Join(err, buffer.Flush(), file.Close()); err != nil {
		return errors.Join(err, os.Remove(unfinished))
	}
	return os.Rename(unfinished, path)
}

// chooseTokenizer returns the name of the tokenizer, and the reason for the choice.
func (o Options) chooseTokenizer() (name, reason string) {
	if o.Tokenizer != "" {
		return o.Tokenizer, "as requested"
	}
	if !o.creates() {
		return o.Model, "the tokenizer of the model"
	}
	for _, file := range []string{tokenizer.JSONFile, tokenizer.PieceFile} {
		path := filepath.Join(filepath.Dir(o.Texts[0]), file)
		if _, err := os.Stat(path); err == nil {
			return path, "found next to the text"
		}
	}
	return "bytes", "one token per byte: no tokenizer is next to the text"
}

// ends lists the names of tokens that end a text, in common tokenizers.
var ends = []string{"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"}

// separator returns the ids after each text: the token that ends a text, or else a line break.
func separator(t *tokenizer.Tokenizer) ([]int32, error) {
	for _, name := range ends {
		if id, found := t.ID(name); found {
			return []int32{id}, nil
		}
	}
	return t.Encode([]byte("\n"))
}

// missing reports whether an error means that a file does not exist.
func missing(err error) bool { return errors.Is(err, fs.ErrNotExist) }
