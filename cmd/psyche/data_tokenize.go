package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/psyche-go/psyche/data/prepare"
	"github.com/psyche-go/psyche/tokenizer"
)

type dataTokenize struct {
	Output          string   `required:"" placeholder:"DIR" help:"Folder to write: train-*.ds, data.json, heldout/heldout.ds."`
	Tokenizer       string   `default:"bytes" placeholder:"FILE" help:"A tokenizer.json, or bytes for one token per byte (${default})."`
	TokenSize       int      `enum:"2,4" default:"2" help:"Bytes of a token: 2 or 4 (${default})."`
	Include         []string `sep:"none" placeholder:"PATTERN" help:"Read only files of these names in folders, as in --include '*.go'. May be repeated."`
	HeldOut         []string `sep:"none" placeholder:"FILE" help:"Hold the tokens of this file out of training. May be repeated."`
	HeldOutFraction float64  `default:"0" help:"Share of the files of folders to hold out of training, 0 to below 1 (${default})."`
	Separator       string   `default:"\\n" help:"Text between files, with escapes as in Go; empty for none."`
	ShardTokens     int      `default:"0" help:"Largest number of tokens of a file; 0: 67108864 (${default})."`
	Force           bool     `help:"Replace token files in the output folder."`
	Paths           []string `arg:"" name:"path" help:"Text files, and folders of them. Files that are not UTF-8 text are skipped and counted."`
}

// progressInterval is the time between two lines of progress.
const progressInterval = time.Second

// Run writes the token files.
func (c dataTokenize) Run(ctx context.Context, to console) error {
	encoder, err := loadTokenizer(c.Tokenizer)
	if err != nil {
		return err
	}
	separator, err := strconv.Unquote(`"` + c.Separator + `"`)
	if err != nil {
		return fmt.Errorf("--separator %q has an escape that is not known", c.Separator)
	}
	ids, err := encoder.Encode([]byte(separator))
	if err != nil {
		return fmt.Errorf("--separator: %w", err)
	}
	started := time.Now()
	manifest, err := prepare.Run(ctx, prepare.Options{
		Paths:           c.Paths,
		Output:          c.Output,
		Force:           c.Force,
		Tokenizer:       encoder,
		TokenizerName:   c.Tokenizer,
		TokenSize:       c.TokenSize,
		Separator:       ids,
		Include:         c.Include,
		HeldOut:         c.HeldOut,
		HeldOutFraction: c.HeldOutFraction,
		ShardTokens:     c.ShardTokens,
		Progress:        progressLines(to.err),
	})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(to.out, "%s: %d tokens in %d files, %d held out; from %d text files, %d that are not text skipped; %.1f s\n",
		c.Output, manifest.Tokens, len(manifest.Files), manifest.HeldOutTokens, manifest.TextFiles, manifest.SkippedBinary, time.Since(started).Seconds())
	return err
}

// loadTokenizer returns the byte-level tokenizer, or that of a file.
func loadTokenizer(name string) (*tokenizer.Tokenizer, error) {
	if name == "bytes" {
		return tokenizer.Bytes(), nil
	}
	return tokenizer.Load(name)
}

// progressLines returns a function that prints progress now and then.
func progressLines(to io.Writer) func(prepare.Progress) {
	next := time.Now().Add(progressInterval)
	return func(p prepare.Progress) {
		if now := time.Now(); now.After(next) {
			next = now.Add(progressInterval)
			_, _ = fmt.Fprintf(to, "%d files, %d tokens\n", p.Files, p.Tokens+p.HeldOutTokens)
		}
	}
}
