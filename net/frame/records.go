package frame

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/record/wire"
)

// Limits of a Records frame.
const (
	MaxRecordsSize = 256 << 10 // bytes of its records, unless it has only one
	maxHeads       = 16        // heads per frame
	// windowSize is the number of bytes of preceding records that serve as the compression
	// dictionary of a frame. The records of one round resemble each other.
	windowSize = 32 << 10
)

// maxRawRecords is the maximum decompressed size of a frame's records.
const maxRawRecords = MaxRecordsSize + 64<<10

// Follow requests the records of the run's log from an index on, and all future records.
type Follow struct {
	Index uint64 // number of records that the client has; 1: only the genesis
}

// AppendTo appends the payload of the frame.
func (f Follow) AppendTo(b []byte) []byte { return binary.LittleEndian.AppendUint64(b, f.Index) }

// DecodeFollow reads the payload of a Follow.
func DecodeFollow(payload []byte) (Follow, error) {
	d := decoder{rest: payload}
	f := Follow{Index: d.uint64()}
	if d.err == nil && f.Index == 0 {
		d.err = fmt.Errorf("%w: fewer records than the genesis", ErrMalformed)
	}
	return f, d.end("follow")
}

// Sign contains the sender's signature over the start of an epoch. It means that replaying the
// sender's own copy of the log gave this start.
type Sign struct {
	Index     uint64 // number of records up to the start of the epoch
	Signature [identity.SignatureSize]byte
}

// AppendTo appends the payload of the frame.
func (s Sign) AppendTo(b []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(b, s.Index), s.Signature[:]...)
}

// DecodeSign reads the payload of a Sign.
func DecodeSign(payload []byte) (Sign, error) {
	d := decoder{rest: payload}
	s := Sign{Index: d.uint64()}
	copy(s.Signature[:], d.bytes(len(s.Signature)))
	return s, d.end("sign")
}

// Records contains consecutive records of a run's log.
type Records struct {
	First uint64      // number of records before these
	Raw   []byte      // each preceded by its length, from AppendRecord
	Heads []wire.Head // signed by the host, of the log up to the newest of these records at most, ascending; may be empty
}

// AppendRecord appends a record preceded by its length.
func AppendRecord(b, record []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(record))), record...)
}

// Each calls do for each record, in order, until do returns an error.
func (r Records) Each(do func(record []byte) error) error {
	d := decoder{rest: r.Raw}
	for d.err == nil && len(d.rest) > 0 {
		n := d.uvarint()
		if d.err == nil && n > uint64(len(d.rest)) {
			return fmt.Errorf("%w: a record has %d bytes, but only %d are left", ErrMalformed, n, len(d.rest))
		}
		record := d.bytes(int(n))
		if d.err != nil {
			break
		}
		if err := do(record); err != nil {
			return err
		}
	}
	return d.err
}

// Slide returns the window after the records in raw.
func Slide(window, raw []byte) []byte {
	if len(raw) >= windowSize {
		return bytes.Clone(raw[len(raw)-windowSize:])
	}
	keep := window[max(0, len(window)+len(raw)-windowSize):]
	return append(bytes.Clone(keep), raw...)
}

// AppendTo appends the payload of the frame. window contains the preceding records. The client must
// decode the frame with an equal window.
func (r Records) AppendTo(b, window []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, r.First)
	b = append(b, byte(len(r.Heads)))
	for _, h := range r.Heads {
		b = h.AppendTo(b)
	}
	return append(b, deflate(r.Raw, window)...)
}

// DecodeRecords reads the payload of a Records frame.
func DecodeRecords(payload, window []byte) (Records, error) {
	d := decoder{rest: payload}
	r := Records{First: d.uint64()}
	heads := int(d.byte())
	if heads > maxHeads {
		return r, fmt.Errorf("%w: records with %d heads, at most %d", ErrMalformed, heads, maxHeads)
	}
	for range heads {
		raw := d.bytes(wire.HeadSize)
		if d.err != nil {
			break
		}
		h, err := wire.DecodeHead(raw)
		if err != nil {
			return r, fmt.Errorf("%w: %w", ErrMalformed, err)
		}
		r.Heads = append(r.Heads, h)
	}
	if d.err != nil {
		return r, fmt.Errorf("records: %w", d.err)
	}
	var err error
	r.Raw, err = inflate(d.rest, window, maxRawRecords)
	return r, err
}

// AppendWindow appends the payload of a Window frame: the window that the next Records frame needs.
func AppendWindow(b, window []byte) []byte { return append(b, deflate(window, nil)...) }

// DecodeWindow reads the payload of a Window frame.
func DecodeWindow(payload []byte) ([]byte, error) { return inflate(payload, nil, windowSize) }

// leastWindow is the minimum window that deflate uses. If compression does not make a block shorter,
// package flate stores the block uncompressed. If that is the first block, package flate also stores
// the window with it, and the reader would take the window for content. Package flate decides by
// comparing the compressed block with the block and the window together, and no compressed block is
// longer than its content by leastWindow or more.
const leastWindow = 1 << 10

// fastWriters compress records without a window. A host does this for each client that catches up.
// Level 1 takes a third of the time of the default level, for 5 % more bytes.
var fastWriters = sync.Pool{New: func() any {
	w, err := flate.NewWriter(nil, flate.BestSpeed)
	if err != nil {
		panic("frame: " + err.Error())
	}
	return w
}}

// deflate compresses bytes. Writing to a buffer cannot fail, so it panics on an error.
func deflate(raw, window []byte) []byte {
	var packed bytes.Buffer
	var w *flate.Writer
	var err error
	if len(window) < leastWindow {
		w = fastWriters.Get().(*flate.Writer)
		defer fastWriters.Put(w)
		w.Reset(&packed)
	} else {
		w, err = flate.NewWriterDict(&packed, flate.DefaultCompression, window)
	}
	if err == nil {
		_, err = w.Write(raw)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		panic("frame: " + err.Error())
	}
	return packed.Bytes()
}

// inflate decompresses at most limit bytes.
func inflate(packed, window []byte, limit int) ([]byte, error) {
	source := bytes.NewReader(packed)
	r := flate.NewReaderDict(source, window)
	raw, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	case len(raw) > limit:
		return nil, fmt.Errorf("%w: unpacks to more than %d bytes", ErrMalformed, limit)
	case source.Len() > 0:
		return nil, fmt.Errorf("%w: %d bytes left over", ErrMalformed, source.Len())
	}
	return raw, nil
}
