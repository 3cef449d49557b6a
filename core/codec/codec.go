package codec

import (
	"encoding/binary"
	"fmt"
	"math"
)

// version is the format that Encode writes and Decode reads.
const version = 3

// HeaderSize is the size of the header before the tensors, in bytes.
const HeaderSize = 159

const magic = "PSYD"

// Header identifies the trainer and the batch of a result.
type Header struct {
	// RunHash is the SHA-256 of the run ID.
	RunHash [32]byte
	Step    uint32
	// BatchStart and BatchEnd are the half-open interval of sequence indices [BatchStart,
	// BatchEnd).
	BatchStart, BatchEnd uint64
	// Trainer is the ed25519 public key of the trainer.
	Trainer [32]byte
	// Momentum is the Merkle root of the trainer's momentum after the step (package audit). It is
	// zero in runs without audits.
	Momentum [32]byte
	// Previous is the step of the trainer's result from which this momentum continues. 0 means that
	// the momentum started as zeros in this step, or that Momentum is zero.
	Previous uint32
	// Precision is the type in which the trainer computed (package audit): 1 is f32, 2 is bf16. It
	// is 0 in runs without audits.
	Precision uint8
	// Batch is the hash of the batch's tokens as the trainer received them (package data). It is
	// zero in runs without audits.
	Batch [32]byte
}

// maxPrecision is the largest precision code.
const maxPrecision = 2

// check reports what is invalid in a header.
func (h Header) check() error {
	switch {
	case h.BatchStart >= h.BatchEnd:
		return fmt.Errorf("%w: empty batch [%d,%d)", errInvalid, h.BatchStart, h.BatchEnd)
	case h.Previous != 0 && h.Previous >= h.Step:
		return fmt.Errorf("%w: the momentum of step %d continues from step %d", errInvalid, h.Step, h.Previous)
	case h.Momentum == [32]byte{} && (h.Previous != 0 || h.Precision != 0 || h.Batch != [32]byte{}):
		return fmt.Errorf("%w: the step, type or batch hash of a momentum without its root", errInvalid)
	case h.Momentum != [32]byte{} && (h.Precision < 1 || h.Precision > maxPrecision):
		return fmt.Errorf("%w: the type of a gradient is %d, want 1 to %d", errInvalid, h.Precision, maxPrecision)
	}
	return nil
}

// MaxSize returns the maximum size in bytes of a result with these layouts. The layouts must be
// valid.
func MaxSize(layouts []TensorLayout, quantized bool) int { return maxSize(layouts, formOf(quantized)) }

func maxSize(layouts []TensorLayout, f form) int {
	total := HeaderSize
	for _, l := range layouts {
		total += l.maxSize(f)
	}
	return total
}

// Encode returns the bytes of a result with one TensorResult for each layout. If quantized is true,
// it writes only the signs of the values.
func Encode(h Header, layouts []TensorLayout, quantized bool, results []TensorResult) ([]byte, error) {
	return encode(h, layouts, formOf(quantized), results)
}

func encode(h Header, layouts []TensorLayout, f form, results []TensorResult) ([]byte, error) {
	if len(results) != len(layouts) {
		return nil, fmt.Errorf("encode result: %w: %d tensors for %d layouts", errInvalid, len(results), len(layouts))
	}
	size := HeaderSize
	for i, l := range layouts {
		if err := l.check(results[i], f); err != nil {
			return nil, fmt.Errorf("encode result: tensor %d: %w", i, err)
		}
		size += l.fullSize(f)
	}
	if err := h.check(); err != nil {
		return nil, fmt.Errorf("encode result: %w", err)
	}
	b := make([]byte, 0, size)
	b = append(b, magic...)
	b = append(b, version, byte(f))
	b = append(b, h.RunHash[:]...)
	b = binary.LittleEndian.AppendUint32(b, h.Step)
	b = binary.LittleEndian.AppendUint64(b, h.BatchStart)
	b = binary.LittleEndian.AppendUint64(b, h.BatchEnd)
	b = append(b, h.Trainer[:]...)
	b = append(b, h.Momentum[:]...)
	b = binary.LittleEndian.AppendUint32(b, h.Previous)
	b = append(b, h.Precision)
	b = append(b, h.Batch[:]...)
	w := bitWriter{bytes: b}
	for i, l := range layouts {
		w.tensor(l, f, results[i])
	}
	return w.bytes, nil
}

func decodeHeader(b []byte) (h Header, f form, err error) {
	switch {
	case len(b) > len(magic) && string(b[:len(magic)]) == magic && b[len(magic)] != version:
		return h, 0, fmt.Errorf("decode result: %w: version %d, this program reads %d", errInvalid, b[4], version)
	case len(b) < HeaderSize:
		return h, 0, fmt.Errorf("decode result: %w: %d bytes, the header alone has %d", errInvalid, len(b), HeaderSize)
	case string(b[:4]) != magic:
		return h, 0, fmt.Errorf("decode result: %w: not a result: magic %q", errInvalid, b[:4])
	case form(b[5]) > lastForm:
		return h, 0, fmt.Errorf("decode result: %w: flags %#x", errInvalid, b[5])
	}
	h = Header{
		RunHash:    [32]byte(b[6:]),
		Step:       binary.LittleEndian.Uint32(b[38:]),
		BatchStart: binary.LittleEndian.Uint64(b[42:]),
		BatchEnd:   binary.LittleEndian.Uint64(b[50:]),
		Trainer:    [32]byte(b[58:]),
		Momentum:   [32]byte(b[90:]),
		Previous:   binary.LittleEndian.Uint32(b[122:]),
		Precision:  b[126],
		Batch:      [32]byte(b[127:]),
	}
	if err := h.check(); err != nil {
		return Header{}, 0, fmt.Errorf("decode result: %w", err)
	}
	return h, form(b[5]), nil
}

// Decode decodes the output of Encode for these layouts. For all other input it returns an error
// that wraps errInvalid.
func Decode(b []byte, layouts []TensorLayout, quantized bool) (Header, []TensorResult, error) {
	return decode(b, layouts, formOf(quantized))
}

func decode(b []byte, layouts []TensorLayout, want form) (Header, []TensorResult, error) {
	for i, l := range layouts {
		if err := l.Validate(); err != nil {
			return Header{}, nil, fmt.Errorf("decode result: tensor %d: %w", i, err)
		}
	}
	if size := maxSize(layouts, want); len(b) > size {
		return Header{}, nil, fmt.Errorf("decode result: %w: %d bytes, at most %d fit these tensors", errInvalid, len(b), size)
	}
	h, f, err := decodeHeader(b)
	if err != nil {
		return Header{}, nil, err
	}
	if f != want {
		return Header{}, nil, fmt.Errorf("decode result: %w: contains %v, want %v", errInvalid, f, want)
	}
	results := make([]TensorResult, len(layouts))
	rest := b[HeaderSize:]
	for i, l := range layouts {
		r := bitReader{bytes: rest}
		if results[i], err = r.tensor(l, f); err != nil {
			return Header{}, nil, fmt.Errorf("decode result: tensor %d: %w", i, err)
		}
		rest = rest[r.used():]
	}
	if len(rest) != 0 {
		return Header{}, nil, fmt.Errorf("decode result: %w: %d bytes after the last tensor", errInvalid, len(rest))
	}
	return h, results, nil
}

func (w *bitWriter) tensor(l TensorLayout, f form, r TensorResult) {
	w.counts(l, r.Counts)
	previous := firstUnit
	for c, count := range r.Counts {
		at, end := c*l.K, c*l.K+int(count)
		if f.levels() > 0 && count > 0 {
			w.unit(previous, r.Units[c])
			previous = r.Units[c]
		}
		w.set(l, r.Indices[at:end])
		for _, v := range r.Values[at:end] {
			w.write(f.write(v), f.bits())
		}
	}
	w.align()
}

// spelling is the encoding of the counts of a tensor's chunks. Only the shortest possible encoding
// is valid.
type spelling struct {
	full   bool // every chunk has K entries
	either bool // every chunk has K entries or none
}

func spell(l TensorLayout, counts []uint16) spelling {
	s := spelling{full: true, either: true}
	for _, count := range counts {
		s.full = s.full && int(count) == l.K
		s.either = s.either && (count == 0 || int(count) == l.K)
	}
	return s
}

// counts writes the number of entries of each chunk. A count of zero takes one bit.
func (w *bitWriter) counts(l TensorLayout, counts []uint16) {
	s := spell(l, counts)
	w.flag(!s.full)
	if s.full {
		return
	}
	w.flag(!s.either)
	for _, count := range counts {
		w.flag(count > 0)
		if count > 0 && !s.either {
			w.write(uint64(count-1), l.countBits())
		}
	}
}

func (w *bitWriter) flag(set bool) {
	if set {
		w.write(1, 1)
	} else {
		w.write(0, 1)
	}
}

func (r *bitReader) tensor(l TensorLayout, f form) (TensorResult, error) {
	// The minimum size of a tensor: all entries, or a bit for each empty chunk.
	if need := min(l.fullSize(f), l.emptySize()); len(r.bytes) < need {
		return TensorResult{}, fmt.Errorf("%w: %d bytes left, need %d", errInvalid, len(r.bytes), need)
	}
	result := l.newResult(f)
	if err := r.counts(l, result.Counts); err != nil {
		return TensorResult{}, err
	}
	previous := firstUnit
	for c, count := range result.Counts {
		at := c * l.K
		indices, values := result.Indices[at:at+l.K], result.Values[at:at+l.K]
		if f.levels() > 0 && count > 0 {
			var err error
			if previous, err = r.unit(previous); err != nil {
				return TensorResult{}, fmt.Errorf("chunk %d: %w", c, err)
			}
			result.Units[c] = previous
		}
		if err := r.set(l, indices[:count]); err != nil {
			return TensorResult{}, fmt.Errorf("chunk %d: %w", c, err)
		}
		for i := range values[:count] {
			values[i] = f.read(r.read(f.bits()))
		}
		if r.overrun {
			return TensorResult{}, fmt.Errorf("%w: the bytes end in chunk %d", errInvalid, c)
		}
		if err := l.checkChunk(indices, values, int(count)); err != nil {
			return TensorResult{}, fmt.Errorf("chunk %d: %w", c, err)
		}
	}
	return result, r.align()
}

// counts reads the number of entries of each chunk. It refuses an encoding that could be shorter.
func (r *bitReader) counts(l TensorLayout, counts []uint16) error {
	s := spelling{full: r.read(1) == 0}
	if !s.full {
		s.either = r.read(1) == 0
	}
	for c := range counts {
		count := uint64(l.K)
		switch {
		case s.full:
		case r.read(1) == 0:
			count = 0
		case !s.either:
			count = r.read(l.countBits()) + 1
		}
		if count > uint64(l.K) {
			return fmt.Errorf("%w: chunk %d has %d entries, at most %d fit", errInvalid, c, count, l.K)
		}
		counts[c] = uint16(count)
	}
	if shortest := spell(l, counts); !s.full && (shortest.full || shortest.either != s.either) {
		return fmt.Errorf("%w: explicit counts although all chunks are full", errInvalid)
	}
	return nil
}

// set writes the indices of a chunk.
func (w *bitWriter) set(l TensorLayout, indices []uint16) {
	if !l.ranked() {
		for _, index := range indices {
			w.write(uint64(index), l.indexBits())
		}
		return
	}
	table := binomialTable(l.ChunkSize, l.K)
	var space [rankWords]uint64
	rank := number(space[:]).resized(table.words[len(indices)])
	table.rank(indices, rank)
	width := table.widths[len(indices)]
	for _, word := range rank {
		w.write(word&math.MaxUint32, min(width, 32))
		width -= min(width, 32)
		w.write(word>>32, min(width, 32))
		width -= min(width, 32)
	}
}

// set reads len(indices) indices of a chunk. If they were written one by one, the caller must check
// that they ascend.
func (r *bitReader) set(l TensorLayout, indices []uint16) error {
	if !l.ranked() {
		for i := range indices {
			indices[i] = uint16(r.read(l.indexBits()))
		}
		return nil
	}
	table := binomialTable(l.ChunkSize, l.K)
	var space [rankWords]uint64
	rank := number(space[:]).resized(table.words[len(indices)])
	width := table.widths[len(indices)]
	for i := range rank {
		rank[i] = r.read(min(width, 32))
		width -= min(width, 32)
		rank[i] |= r.read(min(width, 32)) << 32
		width -= min(width, 32)
	}
	if !table.unrank(rank, l.ChunkSize, indices) {
		return fmt.Errorf("%w: rank out of range for a set of %d indices", errInvalid, len(indices))
	}
	return nil
}
