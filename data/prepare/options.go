package prepare

import (
	"errors"
	"fmt"
	"math"
	"path"

	"github.com/psyche-go/psyche/tokenizer"
)

// DefaultShardTokens bounds a token file when Options.ShardTokens is 0: 128 MiB of
// two-byte tokens.
const DefaultShardTokens = 64 << 20

// maxTextSize bounds one text file, in bytes; it is read as a whole.
const maxTextSize = 2 << 30

// Errors of Run.
var (
	ErrOutputExists = errors.New("output folder holds data already")
	ErrNoText       = errors.New("no text found")
)

// Options says what Run reads and writes.
type Options struct {
	Paths  []string // text files, and folders that are walked in the order of names
	Output string   // folder to write; made if it is not there
	Force  bool     // replace token files that are there

	Tokenizer     *tokenizer.Tokenizer
	TokenizerName string // for the manifest
	TokenSize     int    // bytes of a token: 2 or 4
	Separator     []int32

	// Include has patterns (path.Match) of the names of files in folders to read. None:
	// all. A file that Paths names is always read.
	Include []string

	// HeldOut has files whose tokens are held out; a file that is also found in Paths
	// is not trained on.
	HeldOut []string

	// HeldOutFraction is the share of files in folders, from 0 to below 1, that is held
	// out. The SHA-256 of its path within its folder decides for each, so that the
	// choice does not depend on the other files.
	HeldOutFraction float64

	ShardTokens int // bound of a token file; 0: DefaultShardTokens

	// Progress is called after every file and must return quickly. May be nil.
	Progress func(Progress)
}

// Progress is how far Run is.
type Progress struct {
	Files         int // read, text and binary
	SkippedBinary int // of these, not text
	Tokens        uint64
	HeldOutTokens uint64
}

func (o Options) check() error {
	switch {
	case len(o.Paths) == 0:
		return errors.New("prepare data: no path of a file or folder to read")
	case o.Output == "":
		return errors.New("prepare data: no output folder")
	case o.Tokenizer == nil:
		return errors.New("prepare data: no tokenizer")
	case o.TokenSize != 2 && o.TokenSize != 4:
		return fmt.Errorf("prepare data: token size %d bytes, want 2 or 4", o.TokenSize)
	case o.TokenSize == 2 && o.Tokenizer.VocabSize() > math.MaxUint16+1:
		return fmt.Errorf("prepare data: the tokenizer has %d tokens, which do not fit 2 bytes; use 4", o.Tokenizer.VocabSize())
	case !(o.HeldOutFraction >= 0 && o.HeldOutFraction < 1):
		return fmt.Errorf("prepare data: held-out fraction %g, want at least 0 and less than 1", o.HeldOutFraction)
	case o.ShardTokens < 0:
		return fmt.Errorf("prepare data: %d tokens of a file, want at least 0", o.ShardTokens)
	}
	for _, id := range o.Separator {
		if id < 0 || int(id) >= o.Tokenizer.VocabSize() {
			return fmt.Errorf("prepare data: separator %d, the vocabulary has %d tokens", id, o.Tokenizer.VocabSize())
		}
	}
	for _, pattern := range o.Include {
		if _, err := path.Match(pattern, ""); err != nil {
			return fmt.Errorf("prepare data: include pattern %q: %w", pattern, err)
		}
	}
	return nil
}
