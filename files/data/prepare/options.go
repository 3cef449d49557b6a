package prepare

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"path"
	"runtime"
	"slices"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/files/tokenizer"
)

// defaultShardTokens limits a token file if Options.ShardTokens is 0: 128 MiB of two-byte tokens.
const defaultShardTokens = 64 << 20

// minShardTokens is the minimum of Options.ShardTokens. Readers open all files of a folder at once.
const minShardTokens = 64 << 10

// Limits in bytes for data that is read as a whole.
const (
	maxTextSize = 1 << 30   // a text file
	maxDocument = 256 << 20 // a line of a JSONL file, a value of a Parquet file, an uncompressed text
)

// Format is the format of a file with texts. A file of any format except Parquet and Arrow may be
// compressed: *.gz, *.zst, *.lz4, *.br.
type Format string

// Formats of files.
const (
	formatAuto    Format = "auto"    // by the ending of the name; text if the ending is unknown
	formatText    Format = "text"    // the file is one text
	formatJSONL   Format = "jsonl"   // a JSON object in every line
	formatJSON    Format = "json"    // an array of JSON objects, or one object with lists
	formatCSV     Format = "csv"     // comma-separated values, tabs in *.tsv
	formatParquet Format = "parquet" // a table
	formatArrow   Format = "arrow"   // a table: a file or a stream
)

// defaultField is the key or column with the text if Options.Field is empty.
const defaultField = "text"

// defaultSplit is the split that is read from a data set with several splits if Options.Split is
// empty.
const defaultSplit = "train"

// Errors of Run.
var (
	errOutputExists = errors.New("the output folder already has data")
	errNoText       = errors.New("no text found")
	// ErrOneText means that no text can be held out, because there is only one.
	ErrOneText    = errors.New("a held-out fraction needs at least two texts")
	errUnfinished = errors.New("the output folder has another unfinished run")
	errBusy       = errors.New("another process is writing to the output folder")
)

// Options configures Run.
type Options struct {
	Paths  []string // files, patterns of them, and folders that are walked in the natural order of names
	Output string   // folder to write; created if missing
	Force  bool     // replace existing token files

	Tokenizer     *tokenizer.Tokenizer
	TokenizerName string  // for the manifest
	TokenSize     int     // bytes of a token: 2 or 4; 0: 2 if all ids fit
	Begin         []int32 // before each text
	Separator     []int32 // after each text

	Format  Format // empty means formatAuto
	Field   string // key or column with the text, or the path to it, see parseField; empty: defaultField, if a file has fields
	Quotes  Quotes // of CSV and TSV; empty: quotesAuto
	Split   string // split of folders that save_to_disk wrote for a DatasetDict; empty: defaultSplit
	Workers int    // texts that are encoded concurrently; 0: one per CPU

	// Include has patterns (path.Match) for the names of the files in folders to read. An empty
	// list means all files. A file that Paths names is always read.
	Include []string

	// Hidden also reads files and folders in folders whose names walk.Hidden reports.
	Hidden bool

	// HeldOut has files whose tokens are held out. A file that is also found in Paths is not used
	// for training.
	HeldOut []string

	// HeldOutFraction is the share of held-out texts, from 0 to below 1: text files in folders, and
	// texts in files with several texts. The SHA-256 of a text's path within its folder, and of its
	// number in its file, decides for each text, so the choice does not depend on other texts. If
	// it selects none of at least two texts, the text with the lowest hash is held out.
	HeldOutFraction float64

	ShardTokens int // limit of a token file, at least minShardTokens; 0: defaultShardTokens

	Space diskspace.Probe // of the output folder; nil: diskspace.Of

	// Progress is called after every part of the input and must return quickly. May be nil.
	Progress func(Progress)

	fieldGiven   bool   // Field was not empty
	jobBytes     int64  // bytes of text that are encoded at once; 0: defaultJobBytes
	journalEvery int64  // bytes of input between entries of the journal; 0: defaultJournalEvery
	afterJournal func() // for tests; may be nil
	smallShards  bool   // for tests: any ShardTokens
}

// defaultJournalEvery is the maximum input, in bytes, that must be encoded again after an
// interruption.
const defaultJournalEvery = 32 << 20

// Progress reports the progress of Run.
type Progress struct {
	Files         int    `json:"files"`                   // read, text and binary
	SkippedBinary int    `json:"skipped_binary"`          // binary files among them
	FirstSkipped  string `json:"first_skipped,omitempty"` // path of the first binary file, and the reason
	Texts         int    `json:"texts"`                   // texts that are not empty
	Tokens        uint64 `json:"tokens"`
	HeldOutTokens uint64 `json:"heldout_tokens"`
	Bytes         int64  `json:"bytes"` // bytes of text

	Input, AllInput int64 `json:"-"` // approximate bytes read, and bytes of all files
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
	case !slices.Contains([]Format{"", formatAuto, formatText, formatJSONL, formatJSON, formatCSV, formatParquet, formatArrow}, o.Format):
		return fmt.Errorf("prepare data: unknown format %q", o.Format)
	case !slices.Contains([]Quotes{"", quotesAuto, quotesDouble, quotesNone}, o.Quotes):
		return fmt.Errorf("prepare data: unknown quotes %q, want auto, double or none", o.Quotes)
	case o.Workers < 0:
		return fmt.Errorf("prepare data: %d workers, want at least 0", o.Workers)
	case o.TokenSize == 2 && o.Tokenizer.VocabSize() > math.MaxUint16+1:
		return fmt.Errorf("prepare data: the tokenizer has %d tokens, too many for 2 bytes per token; use 4", o.Tokenizer.VocabSize())
	case !(o.HeldOutFraction >= 0 && o.HeldOutFraction < 1):
		return fmt.Errorf("prepare data: held-out fraction %g, want at least 0 and less than 1", o.HeldOutFraction)
	case o.ShardTokens != 0 && o.ShardTokens < minShardTokens && !o.smallShards:
		return fmt.Errorf("prepare data: %d tokens per file (--shard-tokens), want at least %d, or 0 for %d", o.ShardTokens, minShardTokens, defaultShardTokens)
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

// withDefaults fills in omitted options.
func (o Options) withDefaults() Options {
	o.ShardTokens = cmp.Or(o.ShardTokens, defaultShardTokens)
	if o.TokenSize == 0 {
		if o.TokenSize = 2; o.Tokenizer.VocabSize() > math.MaxUint16+1 {
			o.TokenSize = 4
		}
	}
	o.Format = cmp.Or(o.Format, formatAuto)
	if o.fieldGiven = o.Field != ""; !o.fieldGiven {
		o.Field = defaultField
	}
	o.Quotes = cmp.Or(o.Quotes, quotesAuto)
	o.Workers = cmp.Or(o.Workers, runtime.GOMAXPROCS(0))
	o.jobBytes = cmp.Or(o.jobBytes, defaultJobBytes)
	o.journalEvery = cmp.Or(o.journalEvery, defaultJournalEvery)
	return o
}
