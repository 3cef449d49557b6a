package codec

import "fmt"

// bitWriter appends bits, lowest bit of a byte first.
type bitWriter struct {
	bytes   []byte
	pending uint64 // bits not yet written as bytes, fewer than 8 between calls
	held    int
}

// write appends the n ≤ 32 lowest bits of v. Its other bits must be zero.
func (w *bitWriter) write(v uint64, n int) {
	w.pending |= v << w.held
	for w.held += n; w.held >= 8; w.held -= 8 {
		w.bytes = append(w.bytes, byte(w.pending))
		w.pending >>= 8
	}
}

// align appends zero bits up to the next byte.
func (w *bitWriter) align() {
	if w.held > 0 {
		w.write(0, 8-w.held)
	}
}

// bitReader reads the output of bitWriter.
type bitReader struct {
	bytes   []byte
	at      int // next byte
	pending uint64
	held    int
	overrun bool // more bits were read than exist; the missing ones read as zero
}

// read returns the next n ≤ 32 bits.
func (r *bitReader) read(n int) uint64 {
	for r.held < n {
		if r.at < len(r.bytes) {
			r.pending |= uint64(r.bytes[r.at]) << r.held
			r.at++
		} else {
			r.overrun = true
		}
		r.held += 8
	}
	v := r.pending & (1<<n - 1)
	r.pending >>= n
	r.held -= n
	return v
}

// align skips the bits up to the next byte, which must be zero.
func (r *bitReader) align() error {
	if r.overrun {
		return fmt.Errorf("%w: the bytes end too early", errInvalid)
	}
	if r.pending != 0 {
		return fmt.Errorf("%w: padding bits are set", errInvalid)
	}
	r.held = 0
	return nil
}

// used returns the number of bytes read.
func (r *bitReader) used() int { return r.at }
