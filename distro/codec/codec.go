package codec

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Version is the format that Encode writes and Decode reads.
const Version = 1

// HeaderSize is the size of what precedes the tensors, in bytes.
const HeaderSize = 90

const magic = "PSYD"

// Header names the batch that a result belongs to.
type Header struct {
	// RunHash is the SHA-256 of the run id.
	RunHash [32]byte
	Step    uint32
	// The batch is the half-open interval of sequence indices [BatchStart, BatchEnd).
	BatchStart, BatchEnd uint64
	// Trainer is the ed25519 public key of the trainer.
	Trainer [32]byte
}

// FullSize returns the size in bytes of a result whose every chunk holds K entries: what
// an ordinary result has.
func FullSize(layouts []TensorLayout, quantized bool) int {
	total := HeaderSize
	for _, l := range layouts {
		total += l.size(l.Chunks*l.K, true, quantized)
	}
	return total
}

// MaxSize returns the most bytes that any result of these layouts can have.
func MaxSize(layouts []TensorLayout, quantized bool) int {
	total := HeaderSize
	for _, l := range layouts {
		// One entry short of full, the counts have to be spelled out.
		total += max(l.size(l.Chunks*l.K, true, quantized), l.size(l.Chunks*l.K-1, false, quantized))
	}
	return total
}

// Encode returns the bytes of a result, one TensorResult for each layout. With quantized
// only the signs of the values are written.
func Encode(h Header, layouts []TensorLayout, quantized bool, results []TensorResult) ([]byte, error) {
	if len(results) != len(layouts) {
		return nil, fmt.Errorf("encode result: %w: %d tensors for %d layouts", ErrInvalid, len(results), len(layouts))
	}
	for i, l := range layouts {
		if err := l.Check(results[i]); err != nil {
			return nil, fmt.Errorf("encode result: tensor %d: %w", i, err)
		}
	}
	if h.BatchStart >= h.BatchEnd {
		return nil, fmt.Errorf("encode result: %w: empty batch [%d,%d)", ErrInvalid, h.BatchStart, h.BatchEnd)
	}
	b := make([]byte, 0, FullSize(layouts, quantized))
	b = append(b, magic...)
	b = append(b, Version, 0)
	if quantized {
		b[len(b)-1] = 1
	}
	b = append(b, h.RunHash[:]...)
	b = binary.LittleEndian.AppendUint32(b, h.Step)
	b = binary.LittleEndian.AppendUint64(b, h.BatchStart)
	b = binary.LittleEndian.AppendUint64(b, h.BatchEnd)
	b = append(b, h.Trainer[:]...)
	w := bitWriter{bytes: b}
	for i, l := range layouts {
		w.tensor(l, quantized, results[i])
	}
	return w.bytes, nil
}

// DecodeHeader reads the header alone.
func DecodeHeader(b []byte) (Header, error) {
	h, _, err := decodeHeader(b)
	return h, err
}

func decodeHeader(b []byte) (h Header, quantized bool, err error) {
	switch {
	case len(b) < HeaderSize:
		return h, false, fmt.Errorf("decode result: %w: %d bytes, the header alone has %d", ErrInvalid, len(b), HeaderSize)
	case string(b[:4]) != magic:
		return h, false, fmt.Errorf("decode result: %w: not a result: magic %q", ErrInvalid, b[:4])
	case b[4] != Version:
		return h, false, fmt.Errorf("decode result: %w: version %d, this program reads %d", ErrInvalid, b[4], Version)
	case b[5] > 1:
		return h, false, fmt.Errorf("decode result: %w: flags %#x", ErrInvalid, b[5])
	}
	h = Header{
		RunHash:    [32]byte(b[6:]),
		Step:       binary.LittleEndian.Uint32(b[38:]),
		BatchStart: binary.LittleEndian.Uint64(b[42:]),
		BatchEnd:   binary.LittleEndian.Uint64(b[50:]),
		Trainer:    [32]byte(b[58:]),
	}
	if h.BatchStart >= h.BatchEnd {
		return Header{}, false, fmt.Errorf("decode result: %w: empty batch [%d,%d)", ErrInvalid, h.BatchStart, h.BatchEnd)
	}
	return h, b[5] == 1, nil
}

// Decode reads exactly what Encode writes for these layouts; anything else, however
// little, is an error that wraps ErrInvalid.
func Decode(b []byte, layouts []TensorLayout, quantized bool) (Header, []TensorResult, error) {
	if size := MaxSize(layouts, quantized); len(b) > size {
		return Header{}, nil, fmt.Errorf("decode result: %w: %d bytes, at most %d fit these tensors", ErrInvalid, len(b), size)
	}
	h, signs, err := decodeHeader(b)
	if err != nil {
		return Header{}, nil, err
	}
	if signs != quantized {
		return Header{}, nil, fmt.Errorf("decode result: %w: quantized is %v, the run's is %v", ErrInvalid, signs, quantized)
	}
	results := make([]TensorResult, len(layouts))
	rest := b[HeaderSize:]
	for i, l := range layouts {
		if err := l.Validate(); err != nil {
			return Header{}, nil, fmt.Errorf("decode result: tensor %d: %w", i, err)
		}
		// Hold the bytes against the layout before memory is set aside for it.
		r := bitReader{bytes: rest}
		if results[i], err = r.tensor(l, quantized); err != nil {
			return Header{}, nil, fmt.Errorf("decode result: tensor %d: %w", i, err)
		}
		rest = rest[r.used():]
	}
	if len(rest) != 0 {
		return Header{}, nil, fmt.Errorf("decode result: %w: %d bytes after the last tensor", ErrInvalid, len(rest))
	}
	return h, results, nil
}

func (w *bitWriter) tensor(l TensorLayout, quantized bool, r TensorResult) {
	full := isFull(l, r.Counts)
	if full {
		w.write(0, 1)
	} else {
		w.write(1, 1)
		for _, count := range r.Counts {
			w.write(uint64(count), l.countBits())
		}
	}
	for c, count := range r.Counts {
		for i := c * l.K; i < c*l.K+int(count); i++ {
			w.write(uint64(r.Indices[i]), l.indexBits())
			value := uint64(math.Float32bits(r.Values[i]))
			if quantized {
				value >>= 31
			}
			w.write(value, valueBits(quantized))
		}
	}
	w.align()
}

func isFull(l TensorLayout, counts []uint16) bool {
	for _, count := range counts {
		if int(count) != l.K {
			return false
		}
	}
	return true
}

func (r *bitReader) tensor(l TensorLayout, quantized bool) (TensorResult, error) {
	// The least a tensor takes: the flag, and then either all entries or all counts.
	if need := min(l.size(l.Chunks*l.K, true, quantized), l.size(0, false, quantized)); len(r.bytes) < need {
		return TensorResult{}, fmt.Errorf("%w: %d bytes left, need %d", ErrInvalid, len(r.bytes), need)
	}
	result := l.NewResult()
	if err := r.counts(l, result.Counts); err != nil {
		return TensorResult{}, err
	}
	for c, count := range result.Counts {
		at := c * l.K
		indices, values := result.Indices[at:at+l.K], result.Values[at:at+l.K]
		for i := range int(count) {
			index, value := r.read(l.indexBits()), r.read(valueBits(quantized))
			if quantized {
				value = uint64(math.Float32bits(1)) | value<<31
			}
			indices[i], values[i] = uint16(index), math.Float32frombits(uint32(value))
		}
		if r.overrun {
			return TensorResult{}, fmt.Errorf("%w: the bytes end in chunk %d", ErrInvalid, c)
		}
		if err := l.checkChunk(indices, values, int(count)); err != nil {
			return TensorResult{}, fmt.Errorf("chunk %d: %w", c, err)
		}
	}
	return result, r.align()
}

// counts reads how many entries each chunk has. Counts that are all K may not be spelled
// out.
func (r *bitReader) counts(l TensorLayout, counts []uint16) error {
	if r.read(1) == 0 {
		for c := range counts {
			counts[c] = uint16(l.K)
		}
		return nil
	}
	for c := range counts {
		count := r.read(l.countBits())
		if count > uint64(l.K) {
			return fmt.Errorf("%w: chunk %d has %d entries, at most %d fit", ErrInvalid, c, count, l.K)
		}
		counts[c] = uint16(count)
	}
	if isFull(l, counts) {
		return fmt.Errorf("%w: counts of full chunks spelled out", ErrInvalid)
	}
	return nil
}
