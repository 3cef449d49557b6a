package prepare

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/psyche-go/psyche/base/diskspace"
	"github.com/psyche-go/psyche/files/tokenizer"
)

// Limits for examining the text files whose tokens are estimated.
const (
	leastEstimated = 64 << 10  // bytes of a file
	startEstimated = 4 << 10   // bytes at the start of a file, which show whether it is text
	sampleSize     = 128 << 10 // bytes of the largest file, which show how many tokens a text has
)

// checkSpace returns an error that wraps diskspace.ErrTooLittle if the output certainly does not
// fit. The number of tokens in tables and compressed files cannot be estimated from their size: for
// them, the disk must only have some free space.
func (r *run) checkSpace(sources []source) error {
	o, need := r.o, uint64(1)
	text, largest := estimable(sources)
	text -= r.at.Progress.Bytes // an interrupted run wrote its tokens already
	if text > 0 {
		need = max(need, uint64(float64(text)*o.tokensPerByte(largest)*float64(o.TokenSize)))
	}
	if err := diskspace.Check(o.Output, "the token files", need, o.Space); err != nil {
		return fmt.Errorf("prepare data: %w, choose another output folder, or fewer files", err)
	}
	return nil
}

// estimable returns the bytes of the text files, and the largest of these files. It leaves out
// small files, compressed files, tables, and files that do not start as UTF-8 text.
func estimable(sources []source) (total int64, largest source) {
	for _, s := range sources {
		packed := slices.Contains(compressions, path.Ext(strings.ToLower(s.path)))
		if s.format != FormatText || packed || s.size < leastEstimated || !beginsAsText(s.path) {
			continue
		}
		if total += s.size; s.size > largest.size {
			largest = s
		}
	}
	return total, largest
}

// tokensPerByte returns the tokens per byte of text: 1 for the byte tokenizer, otherwise a low
// estimate, half of the ratio at the start of a file.
func (o Options) tokensPerByte(of source) float64 {
	if bytes.Equal(o.Tokenizer.JSON(), tokenizer.Bytes().JSON()) {
		return 1
	}
	text := startOf(of.path, sampleSize)
	ids, err := o.Tokenizer.Encode(text)
	if err != nil || len(text) == 0 {
		return 0
	}
	return float64(len(ids)) / float64(len(text)) / 2
}

func beginsAsText(name string) bool {
	start := startOf(name, startEstimated)
	return len(start) > 0 && bytes.IndexByte(start, 0) < 0
}

// startOf returns the start of a file, cut after a complete UTF-8 character, or nil if it is not
// UTF-8.
func startOf(name string, size int64) []byte {
	file, err := os.Open(name)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }() // it is only read
	start, err := io.ReadAll(io.LimitReader(file, size))
	if err != nil {
		return nil
	}
	for cut := range min(utf8.UTFMax, len(start)) {
		if whole := start[:len(start)-cut]; utf8.Valid(whole) {
			return whole
		}
	}
	return nil
}

// kept describes, for errors, the files that a run leaves on a full disk.
func (r *run) kept() string {
	if r.at.Next == (place{}) {
		return "nothing was kept; remove other files, and run the command again"
	}
	return fmt.Sprintf("%d tokens are kept in %s; remove other files, and run the command again to resume",
		r.at.Progress.Tokens+r.at.Progress.HeldOutTokens, filepath.Join(r.o.Output, workName))
}
