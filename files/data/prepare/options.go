package prepare

import (
	"errors"
	"fmt"
	"math"
	"path"
	"runtime"
	"slices"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/files/tokenizer"
)

// DefaultShardTokens bounds a token file when Options.ShardTokens is 0: 128 MiB of
// two-byte tokens.
const DefaultShardTokens = 64 << 20

// MinShardTokens is the least that Options.ShardTokens may be. Readers open all files of a
// folder at once.
const MinShardTokens = 64 << 10

// Bounds on what is read as a whole, in bytes.
const (
	maxTextSize = 1 << 30   // a text file
	maxDocument = 256 << 20 // a line of a JSONL file, a value of a Parquet file, an unpacked text
)

// Format says how the texts lie in a file. All but tables may be compressed: *.gz, *.zst, *.lz4, *.br.
type Format string

// Formats of files.
const (
	FormatAuto    Format = "auto"    // by the ending of the name; text if that says nothing
	FormatText    Format = "text"    // the file is one text
	FormatJSONL   Format = "jsonl"   // a JSON object in every line
	FormatJSON    Format = "json"    // an array of JSON objects, or one object with lists
	FormatCSV     Format = "csv"     // comma-separated values, tabs in *.tsv
	FormatParquet Format = "parquet" // a table
	FormatArrow   Format = "arrow"   // a table: a file or a stream
)

// DefaultField is the key or column with the text when Options.Field is empty.
const DefaultField = "text"

// DefaultSplit is what is read of a data set of several splits when Options.Split is empty.
const DefaultSplit = "train"

// Errors of Run.
var (
	ErrOutputExists = errors.New("the output folder already has data")
	ErrNoText       = errors.New("no text found")
	ErrUnfinished   = errors.New("the output folder has another unfinished run")
	ErrBusy         = errors.New("another process is writing to the output folder")
)

// Options says what Run reads and writes.
type Options struct {
	Paths  []string // files, patterns of them, and folders that are walked in the natural order of names
	Output string   // folder to write; made if it is not there
	Force  bool     // replace token files that are there

	Tokenizer     *tokenizer.Tokenizer
	TokenizerName string  // for the manifest
	TokenSize     int     // bytes of a token: 2 or 4; 0: 2 if all ids fit
	Begin         []int32 // before each text
	Separator     []int32 // after each text

	Format  Format // empty: FormatAuto
	Field   string // key or column with the text, or the way to it, see parseField; empty: DefaultField, if a file has fields
	Quotes  Quotes // of CSV and TSV; empty: QuotesAuto
	Split   string // of folders that save_to_disk wrote of a DatasetDict; empty: DefaultSplit
	Workers int    // texts that are encoded at once; 0: one for every CPU

	// Include has patterns (path.Match) of the names of files in folders to read. None:
	// all. A file that Paths names is always read.
	Include []string

	// Hidden also reads files and folders in folders whose names walk.Hidden reports.
	Hidden bool

	// HeldOut has files whose tokens are held out; a file that is also found in Paths
	// is not trained on.
	HeldOut []string

	// HeldOutFraction is the share of text files in folders, and of texts in files that
	// have several, from 0 to below 1, that is held out. The SHA-256 of its path within
	// its folder, and its number in its file, decides for each, so that the choice does
	// not depend on the others. When it would be none, it is the one of at least two for
	// which that hash is lowest.
	HeldOutFraction float64

	ShardTokens int // bound of a token file, at least MinShardTokens; 0: DefaultShardTokens

	Space diskspace.Probe // of the output folder; nil: diskspace.Of

	// Progress is called after every part of the input and must return quickly. May be nil.
	Progress func(Progress)

	fieldGiven   bool   // Field was not empty
	jobBytes     int64  // of text that are encoded at once; 0: defaultJobBytes
	journalEvery int64  // bytes of input between entries of the journal; 0: defaultJournalEvery
	afterJournal func() // for tests; may be nil
	smallShards  bool   // for tests: any ShardTokens
}

// defaultJournalEvery is how much input has to be encoded again after an interruption at
// most, in bytes.
const defaultJournalEvery = 32 << 20

// Progress is how far Run is.
type Progress struct {
	Files         int    `json:"files"`                   // read, text and binary
	SkippedBinary int    `json:"skipped_binary"`          // of these, not text
	FirstSkipped  string `json:"first_skipped,omitempty"` // the path of the first of these, and the reason
	Texts         int    `json:"texts"`                   // that are not empty
	Tokens        uint64 `json:"tokens"`
	HeldOutTokens uint64 `json:"heldout_tokens"`
	Bytes         int64  `json:"bytes"` // of text

	Input, AllInput int64 `json:"-"` // bytes of the files that are read, about, and of all
}

func (o Options) check() error {
	switch {
	case len(o.Paths) == 0:
		return errors.New("prepare data: no input; name a file or folder")
	case o.Output == "":
		return errors.New("prepare data: no output folder; name one")
	case o.Tokenizer == nil:
		return errors.New("prepare data: no tokenizer; name one")
	case o.TokenSize != 0 && o.TokenSize != 2 && o.TokenSize != 4:
		return fmt.Errorf("prepare data: token size %d bytes, want 2 or 4", o.TokenSize)
	case !slices.Contains([]Format{"", FormatAuto, FormatText, FormatJSONL, FormatJSON, FormatCSV, FormatParquet, FormatArrow}, o.Format):
		return fmt.Errorf("prepare data: unknown format %q", o.Format)
	case !slices.Contains([]Quotes{"", QuotesAuto, QuotesDouble, QuotesNone}, o.Quotes):
		return fmt.Errorf("prepare data: unknown quotes %q, want auto, double or none", o.Quotes)
	case o.Workers < 0:
		return fmt.Errorf("prepare data: %d workers, want at least 0", o.Workers)
	case o.TokenSize == 2 && o.Tokenizer.VocabSize() > math.MaxUint16+1:
		return fmt.Errorf("prepare data: the tokenizer has %d tokens, too many for 2 bytes per token; use 4", o.Tokenizer.VocabSize())
	case !(o.HeldOutFraction >= 0 && o.HeldOutFraction < 1):
		return fmt.Errorf("prepare data: held-out fraction %g, want at least 0 and less than 1", o.HeldOutFraction)
	case o.ShardTokens != 0 && o.ShardTokens < MinShardTokens && !o.smallShards:
		return fmt.Errorf("prepare data: %d tokens per file (--shard-tokens), want at least %d, or 0 for %d", o.ShardTokens, MinShardTokens, DefaultShardTokens)
	}
	for _, id := range slices.Concat(o.Separator, o.Begin) {
		if id < 0 || int(id) >= o.Tokenizer.VocabSize() {
			return fmt.Errorf("prepare data: separator %d is outside the vocabulary of %d tokens", id, o.Tokenizer.VocabSize())
		}
	}
	for _, pattern := range o.Include {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("prepare data: include pattern %q: %w", pattern, err)
		}
	}
	return nil
}

// withDefaults fills in what may be left out.
func (o Options) withDefaults() Options {
	if o.ShardTokens == 0 {
		o.ShardTokens = DefaultShardTokens
	}
	if o.TokenSize == 0 {
		if o.TokenSize = 2; o.Tokenizer.VocabSize() > math.MaxUint16+1 {
			o.TokenSize = 4
		}
	}
	if o.Format == "" {
		o.Format = FormatAuto
	}
	if o.fieldGiven = o.Field != ""; !o.fieldGiven {
		o.Field = DefaultField
	}
	if o.Quotes == "" {
		o.Quotes = QuotesAuto
	}
	if o.Workers == 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.jobBytes == 0 {
		o.jobBytes = defaultJobBytes
	}
	if o.journalEvery == 0 {
		o.journalEvery = defaultJournalEvery
	}
	return o
}
