package prepare

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/psyche-go/psyche/base/diskspace"
)

// checkSpace returns an error that wraps diskspace.ErrTooLittle if the output certainly does not
// fit. At least, the disk must have some free space.
func (r *run) checkSpace(ctx context.Context, sources []source) error {
	probe := r.o.Space
	if probe == nil {
		probe = diskspace.Of
	}
	space := probe(r.o.Output)
	if _, known := space.Known(); !known {
		return nil
	}
	e := r.o.newEstimate(sources)
	written := r.at.Progress.Tokens + r.at.Progress.HeldOutTokens // of an interrupted run, on the disk already
	need := uint64(1)
	if !space.Fits(e.most()) {
		tokens := e.tokens(ctx)
		need = max(need, (tokens-min(tokens, written))*uint64(r.o.TokenSize))
	}
	if err := space.Check(r.o.Output, "the token files", need); err != nil {
		return fmt.Errorf("prepare data: %w", err)
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
