package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/psyche-go/psyche/data/local"
	"github.com/psyche-go/psyche/data/prepare"
)

type dataInfo struct {
	Dir       string `arg:"" name:"dir" help:"Folder of token files."`
	SeqLen    int    `default:"1" help:"Count sequences of this many tokens (${default})."`
	TokenSize int    `enum:"0,2,4" default:"0" help:"Bytes of a token: 2 or 4; 0: as the folder's data.json says, or 2 (${default})."`
	VocabSize int    `default:"0" help:"Fail on a token id that is not less; 0: the tokenizer's in data.json, if there is one (${default})."`
}

// Run reads every token, checks the hashes of the manifest, and prints what it found.
func (c dataInfo) Run(ctx context.Context, to console) (err error) {
	manifest, err := prepare.ReadManifest(c.Dir)
	described := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	o := local.Options{SeqLen: c.SeqLen, TokenSize: c.TokenSize, VocabSize: c.VocabSize}
	if o.TokenSize == 0 {
		if o.TokenSize = 2; described {
			o.TokenSize = manifest.TokenSizeInBytes
		}
	}
	if o.VocabSize == 0 {
		o.VocabSize = manifest.Tokenizer.VocabSize
	}
	folder, err := local.Open(c.Dir, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	largest, err := folder.CheckTokens(ctx)
	if err != nil {
		return err
	}
	for _, file := range append(append([]prepare.File{}, manifest.Files...), manifest.HeldOut...) {
		if err := checkFile(c.Dir, file); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(to.out, "%s: %d tokens of %d bytes in %d files, %d sequences of %d tokens, largest id %d\n",
		c.Dir, folder.Tokens(), o.TokenSize, len(folder.Files()), folder.Len(), c.SeqLen, largest)
	if err == nil && described {
		_, err = fmt.Fprintf(to.out, "tokenizer %s with %d tokens, %d tokens held out, the SHA-256 of every file is right\n",
			manifest.Tokenizer.Name, manifest.Tokenizer.VocabSize, manifest.HeldOutTokens)
	}
	return err
}

// checkFile compares a token file with its entry in the manifest.
func checkFile(dir string, entry prepare.File) (err error) {
	if !filepath.IsLocal(filepath.FromSlash(entry.Name)) {
		return fmt.Errorf("check %s: %q names a file outside the folder", filepath.Join(dir, prepare.ManifestName), entry.Name)
	}
	path := filepath.Join(dir, filepath.FromSlash(entry.Name))
	file, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("check token file: %w", err)
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	hash := sha256.New()
	if _, err := io.Copy(hash, file); err != nil {
		return fmt.Errorf("check token file: %w", err)
	}
	if found := hex.EncodeToString(hash.Sum(nil)); found != entry.SHA256 {
		return fmt.Errorf("token file %s is not what %s describes: its SHA-256 is %s, not %s; make the data again",
			path, prepare.ManifestName, found, entry.SHA256)
	}
	return nil
}
