package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/psyche-go/psyche/cmd/internal/meter"
	"github.com/psyche-go/psyche/files/data/prepare"
	"github.com/psyche-go/psyche/files/data/walk"
	"github.com/psyche-go/psyche/files/tokenizer"
)

type dataTokenize struct {
	Output          string   `required:"" placeholder:"DIR" help:"Folder to write: train-*.ds, data.json, heldout/heldout.ds."`
	Tokenizer       string   `default:"bytes" placeholder:"FILE" help:"A tokenizer.json or tokenizer.model, a folder that has one, OWNER/NAME of a model on the Hugging Face Hub, or bytes for one token per byte (${default})."`
	TokenSize       int      `enum:"0,2,4" default:"0" help:"Bytes of a token: 2 or 4; 0: 2 if every id of the tokenizer fits (${default})."`
	Format          string   `enum:"auto,text,jsonl,json,csv,parquet,arrow" default:"auto" help:"How texts lie in files: text for one in each, jsonl for a JSON object in each line, json for an array of objects or one object, csv, parquet, arrow; auto: by the ending .jsonl, .ndjson, .json, .csv, .tsv (these and texts also with .gz, .zst, .lz4 or .br behind it), .parquet, .pq, .parq, .arrow, .feather or .ipc, or by the content of Parquet and Arrow, else text (${default})."`
	Field           string   `placeholder:"NAME" help:"Key (JSON) or column (CSV, Parquet, Arrow) of the text, or the way to it: messages.content is the texts of a list, each a line, messages[0].content its first. A list of integers is token ids. Of one JSON object the first list on the way has the texts. Without --field: text, and a .json file with one object is one text."`
	Quotes          string   `enum:"auto,double,none" default:"auto" help:"Double quotes in CSV and TSV: double for quotes around values (RFC 4180), none for quotes as text; auto: none in .tsv, else double (${default})."`
	Split           string   `default:"train" placeholder:"NAME" help:"The split to read of a data set that has several (${default})."`
	Include         []string `sep:"none" placeholder:"PATTERN" help:"Read only files of these names in folders, as in --include '*.go'. May be repeated."`
	IncludeHidden   bool     `help:"Also read files and folders in folders whose names begin with a dot, and locks and metadata."`
	HeldOut         []string `sep:"none" placeholder:"FILE" help:"Hold the tokens of this file out of training. May be repeated."`
	HeldOutFraction float64  `default:"0" help:"Share of the text files of folders, and of the texts of other files, to hold out of training, 0 to below 1; above 0 it is at least one of two (${default})."`
	BOS             string   `name:"bos" placeholder:"TOKEN" help:"Token to put before each text, as the tokenizer.json names it."`
	EOS             string   `name:"eos" placeholder:"TOKEN" help:"Token to put after each text, instead of --separator."`
	Separator       *string  `placeholder:"TEXT" help:"Text to put after each text, with escapes as in Go; empty for none. Default: \\n, or none with --eos."`
	ShardTokens     int      `default:"0" placeholder:"N" help:"Largest number of tokens of a file, at least 65536; 0: 67108864 (${default})."`
	Workers         int      `default:"0" placeholder:"N" help:"Texts to encode at once; 0: one for each CPU. The outcome does not depend on it (${default})."`
	Force           bool     `help:"Replace token files in the output folder."`
	Paths           []string `arg:"" name:"path" help:"Files, patterns of them, folders, and data sets of the Hugging Face Hub: hf://datasets/OWNER/NAME, with @REVISION, or a path or pattern in it, behind. Files that are not UTF-8 text are skipped and counted. A run that was interrupted goes on where it was when the same command is given again."`
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
	made, err := prepare.Run(ctx, prepare.Options{
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
	if err != nil {
		return err
	}
	met := walk.Counts{Hidden: made.HiddenLeftOut, Links: made.LinksFollowed, Dead: made.LinksLeftOut, Other: made.SpecialLeftOut}
	_, err = fmt.Fprintf(to.out, "%s: %d tokens of %d bytes in %d files, %d held out; from %d texts in %d text files, %d that are not text skipped%s%s; %.1f s\n",
		c.Output, made.Tokens, made.TokenSizeInBytes, len(made.Files), made.HeldOutTokens, made.Texts, made.TextFiles, made.SkippedBinary, skipped, met, time.Since(started).Seconds())
	return err
}

// between returns the ids to put before and after each text.
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
		return nil, nil, fmt.Errorf("--separator %q has an escape that is not known", text)
	}
	if after, err = encoder.Encode([]byte(separator)); err != nil {
		return nil, nil, fmt.Errorf("--separator: %w", err)
	}
	return begin, after, nil
}
