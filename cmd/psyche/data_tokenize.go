package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/base/meter"
	"github.com/psyche-go/psyche/files/data/prepare"
	"github.com/psyche-go/psyche/files/data/walk"
	"github.com/psyche-go/psyche/files/tokenizer"
)

type dataTokenize struct {
	Output          string   `required:"" placeholder:"DIR" help:"Output folder, for train-*.ds, data.json and heldout/heldout.ds."`
	Tokenizer       string   `default:"bytes" placeholder:"FILE" help:"Tokenizer: a tokenizer.json or tokenizer.model, a folder that contains one, OWNER/NAME of a model on the Hugging Face Hub, or the word bytes for one token per byte (${default})."`
	TokenSize       int      `enum:"0,2,4" default:"0" help:"Bytes per token: 2 or 4. 0 means 2 if every id of the tokenizer fits, otherwise 4 (${default})."`
	Format          string   `enum:"auto,text,jsonl,json,csv,parquet,arrow" default:"auto" help:"File format: text (one text per file), jsonl (one JSON object per line), json (an array of objects, objects one after the other, or one object), csv, parquet or arrow. auto uses the file extension: .jsonl, .ndjson, .json, .csv, .tsv (these and text files also followed by .gz, .zst, .lz4 or .br), .parquet, .pq, .parq, .arrow, .feather or .ipc; otherwise it detects Parquet and Arrow by their content, and reads all other files as text (${default})."`
	Field           string   `placeholder:"NAME" help:"Key (JSON) or column (CSV, Parquet, Arrow) of the text, or the path to the text: messages.content selects the texts of a list, one per line; messages[0].content selects only the first text. A list of integers is read as token ids. In a single JSON object, the first list on the path contains the texts. Default: text; a .json file with one object is then one text."`
	Quotes          string   `enum:"auto,double,none" default:"auto" help:"Double quotes in CSV and TSV: double for quotes around values (RFC 4180), none for quotes as text. auto means none for .tsv, otherwise double (${default})."`
	Split           string   `default:"train" placeholder:"NAME" help:"Split to read, for data sets with several splits (${default})."`
	Include         []string `sep:"none" placeholder:"PATTERN" help:"Pattern for names of files to read in folders, as in --include '*.go'. May be repeated."`
	IncludeHidden   bool     `help:"Also read lock files, metadata, and files and folders whose names begin with a dot."`
	HeldOut         []string `sep:"none" placeholder:"FILE" help:"File to hold out of training. May be repeated."`
	HeldOutFraction float64  `default:"0" help:"Fraction of the text files in folders, and of the texts in other files, to hold out of training, at least 0 and less than 1. Above 0, at least one text is held out if there are two or more (${default})."`
	BOS             string   `name:"bos" placeholder:"TOKEN" help:"Token before each text, by its name in tokenizer.json."`
	EOS             string   `name:"eos" placeholder:"TOKEN" help:"Token after each text, instead of --separator."`
	Separator       *string  `placeholder:"TEXT" help:"Separator after each text, with escapes as in Go; empty means none. Default: \\n, or none with --eos."`
	ShardTokens     int      `default:"0" placeholder:"N" help:"Maximum tokens per file, at least 65536; 0 means 67108864 (${default})."`
	Workers         int      `default:"0" placeholder:"N" help:"Number of texts to encode concurrently; the output does not depend on this number. 0 means one per CPU (${default})."`
	Force           bool     `help:"Replace token files in the output folder."`
	IgnoreSpace     bool     `help:"Start even if the tokens do not seem to fit on the disk."`
	Paths           []string `arg:"" name:"path" help:"Files, file patterns, folders, and Hugging Face Hub data sets: hf://datasets/OWNER/NAME, optionally followed by @REVISION, or by a path or pattern. Files that are not UTF-8 text are skipped and counted. To continue after an interrupt or a full disk, run the same command again."`
}

// Run writes the token files.
func (c dataTokenize) Run(ctx context.Context, to console) error {
	encoder, err := loadTokenizer(ctx, c.Tokenizer)
	if err != nil {
		return err
	}
	begin, separator, err := c.between(encoder)
	if err != nil {
		return err
	}
	paths, err := c.localPaths(ctx, to)
	if err != nil {
		return err
	}
	started := time.Now()
	m := meter.New(to.err, "psyche: tokenizing")
	skipped := ""
	var space diskspace.Probe
	if c.IgnoreSpace {
		space = func(string) diskspace.Space { return diskspace.Space{} }
	}
	made, err := prepare.Run(ctx, prepare.Options{
		Space:           space,
		Paths:           paths,
		Output:          c.Output,
		Force:           c.Force,
		Tokenizer:       encoder,
		TokenizerName:   c.Tokenizer,
		TokenSize:       c.TokenSize,
		Begin:           begin,
		Separator:       separator,
		Format:          prepare.Format(c.Format),
		Field:           c.Field,
		Quotes:          prepare.Quotes(c.Quotes),
		Split:           c.Split,
		Workers:         c.Workers,
		Include:         c.Include,
		Hidden:          c.IncludeHidden,
		HeldOut:         c.HeldOut,
		HeldOutFraction: c.HeldOutFraction,
		ShardTokens:     c.ShardTokens,
		Progress: func(p prepare.Progress) {
			if p.FirstSkipped != "" {
				skipped = " (the first is " + p.FirstSkipped + ")"
			}
			m.Note(func() string {
				return fmt.Sprintf("%d files, %d texts, %d tokens", p.Files, p.Texts, p.Tokens+p.HeldOutTokens)
			})
			m.At(p.Input, p.AllInput)
		},
	})
	m.Done()
	if errors.Is(err, diskspace.ErrTooLittle) {
		err = fmt.Errorf("%w, choose another output folder, use fewer files, or, if this estimate is wrong, add --ignore-space", err)
	}
	if err != nil {
		return err
	}
	met := walk.Counts{Hidden: made.HiddenLeftOut, Links: made.LinksFollowed, Dead: made.LinksLeftOut, Other: made.SpecialLeftOut}
	_, err = fmt.Fprintf(to.out, "%s: %d tokens of %d bytes in %d files, %d held out; from %d texts in %d text files, %d that are not text skipped%s%s; %.1f s\n",
		c.Output, made.Tokens, made.TokenSizeInBytes, len(made.Files), made.HeldOutTokens, made.Texts, made.TextFiles, made.SkippedBinary, skipped, met, time.Since(started).Seconds())
	return err
}

// between returns the ids to insert before and after each text.
func (c dataTokenize) between(encoder *tokenizer.Tokenizer) (begin, after []int32, err error) {
	for _, flag := range []struct {
		name, token string
		ids         *[]int32
	}{{"--bos", c.BOS, &begin}, {"--eos", c.EOS, &after}} {
		if flag.token == "" {
			continue
		}
		id, found := encoder.ID(flag.token)
		if !found {
			return nil, nil, fmt.Errorf("%s: the tokenizer has no token %q", flag.name, flag.token)
		}
		*flag.ids = []int32{id}
	}
	text := `\n`
	switch {
	case c.Separator != nil && c.EOS != "":
		return nil, nil, errors.New("--separator and --eos are both given; use one of them")
	case c.Separator != nil:
		text = *c.Separator
	case c.EOS != "":
		return begin, after, nil
	}
	separator, err := strconv.Unquote(`"` + text + `"`)
	if err != nil {
		return nil, nil, fmt.Errorf("--separator %q contains an unknown escape", text)
	}
	if after, err = encoder.Encode([]byte(separator)); err != nil {
		return nil, nil, fmt.Errorf("--separator: %w", err)
	}
	return begin, after, nil
}
