package arrowfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Bounds of buffers, in bytes.
const (
	maxColumn   = 2 << 30   // of one column, or of one dictionary
	maxBuffer   = 1 << 30   // size of a buffer in the file
	maxUnpacked = 512 << 20 // size of a buffer after decompression
	maxWindow   = 128 << 20
)

// Codecs of buffers.
const (
	codecNone = -1
	codecLZ4  = 0
	codecZstd = 1
)

// Batch is a record batch.
type Batch struct {
	Rows int

	file    *File
	m       message
	codec   int64
	nodes   []byte // pairs of the length of a column and its number of nulls, of 8 bytes each
	buffers []byte // pairs of the offset of a buffer in the body and its length
	texts   []byte // for each column of views the number of its text buffers, of 8 bytes each
}

// batch decodes the metadata of a record batch from a table. The rows are in the body of the
// message.
func (f *File) batch(m message, about flatTable) (*Batch, error) {
	rows, err := about.number(0, 8, 0)
	if err != nil {
		return nil, err
	}
	if rows < 0 || rows > maxRows {
		return nil, fmt.Errorf("%w: a record batch has %d rows, the limit is %d; write smaller record batches", ErrInvalid, rows, maxRows)
	}
	b := &Batch{Rows: int(rows), file: f, m: m, codec: codecNone}
	for field, to := range map[int]*[]byte{1: &b.nodes, 2: &b.buffers, 4: &b.texts} {
		size := 16
		if field == 4 {
			size = 8
		}
		at, length, err := about.vector(field, size)
		if err != nil {
			return nil, err
		}
		*to = about.raw[at : at+size*length]
	}
	compression, found, err := about.table(3)
	if err != nil || !found {
		return b, err
	}
	b.codec, err = compression.number(0, 1, codecLZ4)
	if err == nil && b.codec != codecLZ4 && b.codec != codecZstd {
		err = fmt.Errorf("%w: unknown buffer compression %d", ErrInvalid, b.codec)
	}
	return b, err
}

// Column is a column of a batch, or a child of another column.
type Column struct {
	Field   Field
	Length  int
	Columns []*Column // children

	valid, offsets, values []byte     // by Kind; valid is empty if no value is null
	texts                  [][]byte   // for views
	nulls                  bool       // of KindOther: all values are null
	categories             categories // for dictionary-encoded values
}

// Column reads the column with the given number in the schema.
func (b *Batch) Column(number int) (*Column, error) {
	w := walk{batch: b, left: maxColumn}
	for i, field := range b.file.Fields[:number] {
		if err := w.pass(field); err != nil {
			return nil, fmt.Errorf("column %q: %w", b.file.Fields[i].Name, err)
		}
	}
	column, err := w.read(b.file.Fields[number])
	if err == nil && column.Length != b.Rows {
		err = fmt.Errorf("%w: %d values, but the record batch has %d rows", ErrInvalid, column.Length, b.Rows)
	}
	if err != nil {
		return nil, fmt.Errorf("column %q: %w", b.file.Fields[number].Name, err)
	}
	return column, nil
}

// walk iterates over the columns of a batch in their order.
type walk struct {
	batch              *Batch
	node, buffer, text int   // next
	left               int64 // bytes that may still be read
}

// pass skips a column.
func (w *walk) pass(f Field) error {
	w.node++
	w.buffer += f.buffers
	if f.kind == typeUnion && w.batch.file.version < 4 {
		w.buffer++ // in metadata before V5 a union also has a validity buffer
	}
	if f.views() {
		texts, err := w.textBuffers()
		if err != nil {
			return err
		}
		w.buffer += texts
	}
	if f.dictionary != nil { // the children are in the dictionary
		return nil
	}
	for _, inner := range f.Fields {
		if err := w.pass(inner); err != nil {
			return err
		}
	}
	return nil
}

// textBuffers returns the number of text buffers of the next column of views.
func (w *walk) textBuffers() (int, error) {
	if 8*w.text+8 > len(w.batch.texts) {
		return 0, fmt.Errorf("%w: the record batch has fewer view columns than the schema", ErrInvalid)
	}
	count := binary.LittleEndian.Uint64(w.batch.texts[8*w.text:])
	if count > uint64(len(w.batch.buffers)/16) {
		return 0, fmt.Errorf("%w: a view column has %d buffers, the record batch has fewer", ErrInvalid, count)
	}
	w.text++
	return int(count), nil
}

// next reads the next buffer.
func (w *walk) next() ([]byte, error) {
	raw, err := w.batch.buffer(w.buffer)
	if err != nil {
		return nil, err
	}
	w.buffer++
	if w.left -= int64(len(raw)); w.left < 0 {
		return nil, fmt.Errorf("%w: the buffers have more than %d bytes; write smaller record batches", ErrInvalid, int64(maxColumn))
	}
	return raw, nil
}

// read reads a column. For an unsupported kind it sets only the length, and whether all values are
// null.
func (w *walk) read(f Field) (*Column, error) {
	if 16*w.node+16 > len(w.batch.nodes) {
		return nil, fmt.Errorf("%w: the record batch has fewer columns than the schema", ErrInvalid)
	}
	length := int64(binary.LittleEndian.Uint64(w.batch.nodes[16*w.node:]))
	if length < 0 || length > maxBuffer {
		return nil, fmt.Errorf("%w: invalid length %d", ErrInvalid, length)
	}
	c := &Column{Field: f, Length: int(length)}
	if f.Kind == KindOther {
		c.nulls = binary.LittleEndian.Uint64(w.batch.nodes[16*w.node+8:]) == uint64(length)
		return c, w.pass(f)
	}
	w.node++
	to := []*[]byte{&c.valid, &c.offsets, &c.values}[:min(f.buffers, 3)]
	if f.kind == typeInt || f.views() {
		to[1] = &c.values
	}
	for _, buffer := range to {
		var err error
		if *buffer, err = w.next(); err != nil {
			return nil, err
		}
	}
	if err := c.check(); err != nil {
		return nil, err
	}
	if f.dictionary != nil {
		var err error
		c.categories, err = w.batch.file.categories(f.dictionary)
		return c, err
	}
	if f.views() {
		texts, err := w.textBuffers()
		if err != nil {
			return nil, err
		}
		for range texts {
			text, err := w.next()
			if err != nil {
				return nil, err
			}
			c.texts = append(c.texts, text)
		}
	}
	for _, inner := range f.Fields {
		column, err := w.read(inner)
		if err != nil {
			return nil, err
		}
		c.Columns = append(c.Columns, column)
	}
	return c, nil
}

// check returns an error if a buffer is too short for the length of the column.
func (c *Column) check() error {
	n := int64(c.Length)
	short := len(c.valid) > 0 && int64(len(c.valid)) < (n+7)/8
	switch {
	case n == 0:
	case c.Field.kind == typeInt:
		short = short || int64(len(c.values)) < n*int64(c.Field.width)
	case c.Field.views():
		short = short || int64(len(c.values)) < n*viewSize
	case c.Field.kind == typeListView, c.Field.kind == typeLargeListView:
		short = short || int64(min(len(c.offsets), len(c.values))) < n*int64(c.Field.width)
	case c.Field.Kind == KindText, c.Field.Kind == KindList && c.Field.length == 0:
		short = short || int64(len(c.offsets)) < (n+1)*int64(c.Field.width)
	}
	if short {
		return fmt.Errorf("%w: the buffer of %d values is too short", ErrInvalid, c.Length)
	}
	return nil
}

// buffer reads a buffer of a batch.
func (b *Batch) buffer(number int) ([]byte, error) {
	if 16*number+16 > len(b.buffers) {
		return nil, fmt.Errorf("%w: the record batch has fewer buffers than the schema requires", ErrInvalid)
	}
	at := int64(binary.LittleEndian.Uint64(b.buffers[16*number:]))
	length := int64(binary.LittleEndian.Uint64(b.buffers[16*number+8:]))
	if at < 0 || length < 0 || at > b.m.size || length > b.m.size-at {
		return nil, fmt.Errorf("%w: a buffer extends beyond its record batch", ErrInvalid)
	}
	if length > maxBuffer {
		return nil, fmt.Errorf("%w: a buffer has %d bytes, the limit is %d; write smaller record batches", ErrInvalid, length, maxBuffer)
	}
	raw := make([]byte, length)
	if _, err := b.file.from.ReadAt(raw, b.m.body+at); err != nil && (!errors.Is(err, io.EOF) || length != 0) {
		return nil, fmt.Errorf("read: %w", err)
	}
	if b.codec == codecNone || length == 0 {
		return raw, nil
	}
	if length < 8 {
		return nil, fmt.Errorf("%w: a compressed buffer has no length field", ErrInvalid)
	}
	unpacked := int64(binary.LittleEndian.Uint64(raw))
	if raw = raw[8:]; unpacked == -1 { // stored uncompressed
		return raw, nil
	}
	if unpacked < 0 || unpacked > maxUnpacked {
		return nil, fmt.Errorf("%w: a compressed buffer declares %d bytes, the limit is %d; write smaller record batches", ErrInvalid, unpacked, maxUnpacked)
	}
	return unpack(b.codec, raw, int(unpacked))
}

// unpack decompresses a buffer to a given length. Memory grows with the data, not with the
// announced length.
func unpack(codec int64, raw []byte, length int) ([]byte, error) {
	from := io.Reader(lz4.NewReader(bytes.NewReader(raw)))
	if codec == codecZstd {
		decoder, err := zstd.NewReader(bytes.NewReader(raw), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
		}
		defer decoder.Close()
		from = decoder
	}
	var out bytes.Buffer
	n, err := io.Copy(&out, io.LimitReader(from, int64(length)+1))
	if err == nil && n != int64(length) {
		err = fmt.Errorf("unpacked length differs from the declared %d bytes", length)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: a compressed buffer: %w", ErrInvalid, err)
	}
	return out.Bytes(), nil
}
