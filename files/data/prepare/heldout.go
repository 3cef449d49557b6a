package prepare

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// textKey returns the name of a text whose hash is the text's lot (see lot). For a text file this
// is its path in its folder. For one of several texts of a file, the text's number follows the
// path.
func (s source) textKey(number int64) string {
	if s.format == formatText {
		return s.inside
	}
	return fmt.Sprintf("%s#%d", s.inside, number)
}

// holdsOut reports whether a text of a file is held out.
func (o Options) holdsOut(s source, number int64) bool {
	if s.heldOut || s.sole > 0 {
		return s.heldOut || s.sole == number
	}
	return s.format != formatText && o.HeldOutFraction > 0 && o.isHeldOut(s.textKey(number))
}

// drawOne ensures that a share above 0 holds out at least one text. If the lots select none of at
// least two texts, the text with the lowest lot is held out. The function reads the input until it
// finds a held-out text, which is soon unless there are few texts.
func (o Options) drawOne(ctx context.Context, sources []source) error {
	if o.HeldOutFraction == 0 || len(o.HeldOut) > 0 {
		return nil
	}
	d := draw{index: -1}
	for i, s := range sources {
		if found, err := o.drawFrom(ctx, s, i, &d); err != nil || found {
			return err
		}
	}
	if d.texts > 1 && d.index >= 0 {
		sources[d.index].sole = d.number
	}
	return nil
}

// draw is the state of drawOne.
type draw struct {
	texts  int    // texts that are not empty
	index  int    // index of the source with the lowest lot; -1: none yet
	number int64  // number of the text in that source
	lot    uint64 // its lot
}

// drawFrom draws the lots of a source's texts for d, until one of them holds its text out. It
// reports whether it found such a text.
func (o Options) drawFrom(ctx context.Context, s source, index int, d *draw) (found bool, err error) {
	r, err := o.open(ctx, s, 0)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		text, err := r.next()
		if errors.Is(err, io.EOF) || errors.Is(err, errBinary) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("read text %s: %w", s.path, err)
		}
		if text.empty() {
			continue
		}
		d.texts++
		number := r.position()
		if o.holdsOut(s, number) {
			return true, nil
		}
		if s.format == formatText && !s.inFolder {
			continue
		}
		if at := lot(s.textKey(number)); d.index < 0 || at < d.lot {
			d.index, d.number, d.lot = index, number, at
		}
	}
}
