package prepare

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// textKey names a text for its lot: a text file in a folder by its path there, one of
// several texts of a file by its number as well.
func (s source) textKey(number int64) string {
	if s.format == FormatText {
		return s.inside
	}
	return fmt.Sprintf("%s#%d", s.inside, number)
}

// holdsOut says whether a text of a file is held out.
func (o Options) holdsOut(s source, number int64) bool {
	if s.heldOut || s.sole > 0 {
		return s.heldOut || s.sole == number
	}
	return s.format != FormatText && o.HeldOutFraction > 0 && o.isHeldOut(s.textKey(number))
}

// drawOne sees to it that a share above 0 holds out something: when the lot of no text
// says so, and there are at least two, the one with the lowest is held out. It reads the
// input until it finds one that is held out, which is soon unless there are few texts.
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
	texts  int    // that are not empty
	index  int    // of the source with the lowest lot; -1: none yet
	number int64  // of the text there
	lot    uint64 // of it
}

// drawFrom reports whether a text of a source is held out anyway.
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
		if s.format == FormatText && !s.inFolder {
			continue
		}
		if at := lot(s.textKey(number)); d.index < 0 || at < d.lot {
			d.index, d.number, d.lot = index, number, at
		}
	}
}
