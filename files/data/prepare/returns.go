package prepare

import "io"

// quotedReturns reads CSV for package encoding/csv, which drops the CR of each CR LF. It doubles this CR
// within quotes, so that a value keeps its line breaks.
type quotedReturns struct {
	from    io.Reader
	chunk   [1 << 15]byte
	pending []byte // read and not yet returned
	space   []byte // memory of pending, for reuse
	quoted  bool   // the next byte is within quotes
	last    byte
	err     error // follows pending
}

func (q *quotedReturns) Read(p []byte) (int, error) {
	for len(q.pending) == 0 && q.err == nil {
		var n int
		n, q.err = q.from.Read(q.chunk[:])
		q.pending = q.space[:0]
		for _, b := range q.chunk[:n] {
			switch {
			case b == '"':
				q.quoted = !q.quoted
			case b == '\n' && q.last == '\r' && q.quoted:
				q.pending = append(q.pending, '\r')
			}
			q.last = b
			q.pending = append(q.pending, b)
		}
		q.space = q.pending
	}
	n := copy(p, q.pending)
	q.pending = q.pending[n:]
	if n == 0 && len(p) > 0 {
		return 0, q.err
	}
	return n, nil
}
