package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data/local"
	"github.com/psyche-go/psyche/files/data/manifest"
	"github.com/psyche-go/psyche/files/tokenizer"
)

type dataInspect struct {
	Dir       string `arg:"" name:"dir" help:"Folder of token files; with --order also the URL of a mixture's JSON file."`
	SeqLen    int    `default:"1" help:"Count sequences of this many tokens (${default})."`
	TokenSize int    `enum:"0,2,4,8" default:"0" help:"Bytes per token: 2, 4 or 8. 0 reads the size from data.json, *.metadata or *.idx next to the files, or else uses 2 if the ids of --vocab-size or --tokenizer fit (${default})."`
	VocabSize int    `default:"0" help:"Vocabulary size: the command fails on a token id that is not below this size. 0 uses the tokenizer's size in data.json, if there is one (${default})."`
	Tokenizer string `placeholder:"FILE" help:"Tokenizer for showing a sample as text: a tokenizer.json or tokenizer.model, a folder that contains one, OWNER/NAME of a model on the Hub, or the word bytes for one token per byte. Default: the tokenizer that data.json names, if it exists."`
	Sample    int    `default:"64" placeholder:"N" help:"Tokens of the first sequence to show as text; 0 means none (${default})."`
	Position  uint64 `default:"0" placeholder:"N" help:"Sequence to show instead of the first (${default})."`
	Order     uint64 `default:"0" placeholder:"N" help:"Print only the locations of N sequences, from --position on, in the order in which every client of a run reads them, in tab-separated columns; 0 prints the usual report (${default})."`
	Shuffle   uint64 `default:"0" placeholder:"SEED" help:"With --order: shuffling seed, as in solo --shuffle; 0 keeps the order of the files (${default})."`

	AllowInnerData bool `help:"With --order: allow a mixture to name addresses of this machine and of private networks."`
}

// Run reads every token, checks the hashes of the manifest, and prints the results.
func (c dataInspect) Run(ctx context.Context, to console) (err error) {
	if c.Sample < 0 {
		return fmt.Errorf("--sample %d, want at least 0", c.Sample)
	}
	if c.Order > 0 || c.Shuffle > 0 {
		return c.printOrder(ctx, to)
	}
	described, found, err := manifest.Read(c.Dir)
	if err != nil {
		return err
	}
	o := local.Options{SeqLen: c.SeqLen, TokenSize: c.TokenSize, VocabSize: c.VocabSize}
	decoder, err := c.loadTokenizer(ctx, described)
	if err != nil {
		return err
	}
	if o.VocabSize == 0 {
		o.VocabSize = described.Tokenizer.VocabSize
	}
	if o.VocabSize == 0 && decoder != nil {
		o.VocabSize = decoder.VocabSize()
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
	for _, file := range slices.Concat(described.Files, described.HeldOut) {
		if err := checkFile(c.Dir, file); err != nil {
			return err
		}
	}
	_, err = fmt.Fprintf(to.out, "%s: %d tokens of %d bytes (%s) in %d files, %d sequences of %d tokens, largest id %d\n",
		c.Dir, folder.Tokens(), folder.TokenSize(), map[int]string{2: "u16", 4: "u32", 8: "u64"}[folder.TokenSize()], len(folder.Files()), folder.Len(), c.SeqLen, largest)
	if err == nil && found {
		_, err = fmt.Fprintf(to.out, "tokenizer %s with %d tokens, %d tokens held out, the SHA-256 of every file matches\n",
			described.Tokenizer.Name, described.Tokenizer.VocabSize, described.HeldOutTokens)
	}
	if err != nil || c.Sample == 0 || decoder == nil {
		return err
	}
	return c.sample(ctx, to, decoder, o)
}

// sample shows tokens as text.
func (c dataInspect) sample(ctx context.Context, to console, decoder *tokenizer.Tokenizer, o local.Options) (err error) {
	folder, err := local.Open(c.Dir, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	if c.Position >= folder.Len() {
		return fmt.Errorf("--position %d: there are %d sequences of %d tokens", c.Position, folder.Len(), o.SeqLen)
	}
	var ids []int32
	for at := c.Position; at < folder.Len() && len(ids) < c.Sample; at++ {
		sequences, err := folder.Sequences(ctx, assign.BatchID{Start: at, End: at + 1})
		if err != nil {
			return err
		}
		ids = append(ids, sequences[0][:o.SeqLen]...)
	}
	ids = ids[:min(len(ids), c.Sample)]
	text, err := decoder.Decode(ids)
	if err != nil {
		return fmt.Errorf("the tokens do not match this tokenizer: %w", err)
	}
	_, err = fmt.Fprintf(to.out, "sequence %d begins %v\nwhich is %q\n", c.Position, ids, text)
	return err
}

// loadTokenizer returns the tokenizer for decoding, or nil if there is none. It returns an error if
// the tokenizer differs from the data's tokenizer.
func (c dataInspect) loadTokenizer(ctx context.Context, described manifest.Manifest) (*tokenizer.Tokenizer, error) {
	name := c.Tokenizer
	if name == "" {
		name = described.Tokenizer.Name
		if _, err := os.Stat(name); name != "bytes" && err != nil {
			return nil, nil
		}
	}
	loaded, err := loadTokenizer(ctx, name)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(loaded.JSON())
	if want := described.Tokenizer.SHA256; want != "" && want != hex.EncodeToString(sum[:]) {
		return nil, fmt.Errorf("tokenizer %s did not produce the data: its SHA-256 is %x, want %s; pass the right tokenizer with --tokenizer, or use --sample 0", name, sum, want)
	}
	return loaded, nil
}

// checkFile compares a token file with its entry in the manifest.
func checkFile(dir string, entry manifest.File) (err error) {
	if !filepath.IsLocal(filepath.FromSlash(entry.Name)) {
		return fmt.Errorf("check %s: %q names a file outside the folder", filepath.Join(dir, manifest.Name), entry.Name)
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
		return fmt.Errorf("token file %s does not match %s: its SHA-256 is %s, want %s; create the data again",
			path, manifest.Name, found, entry.SHA256)
	}
	return nil
}
