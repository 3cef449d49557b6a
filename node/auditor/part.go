package auditor

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/audit"
	"github.com/psyche-go/psyche/core/coordinator"
)

// OpeningProtocol is the request protocol for the parts of an opening. docs/p2p.md defines its bytes.
const OpeningProtocol = "/psyche/opening/3"

const (
	requestSize = 32 + 4 + 8
	laterSize   = 4
)

// errMalformed means that bytes are not a request, an answer or a part.
var errMalformed = errors.New("malformed request or part of an opening")

// partRequest requests parts of the opening of a result.
type partRequest struct {
	resultID
	wanted uint64 // bit i set: the part of the i-th drawn chunk is wanted
}

// encode returns the bytes of a request: trainer [32] ‖ step u32 ‖ wanted u64, little-endian.
func (r partRequest) encode() []byte {
	b := binary.LittleEndian.AppendUint32(r.Trainer[:], r.Step)
	return binary.LittleEndian.AppendUint64(b, r.wanted)
}

// decodeRequest decodes the output of partRequest.encode.
func decodeRequest(b []byte) (partRequest, error) {
	if len(b) != requestSize {
		return partRequest{}, fmt.Errorf("%w: the request has %d bytes, want %d", errMalformed, len(b), requestSize)
	}
	r := partRequest{
		resultID{coordinator.ClientID(b), binary.LittleEndian.Uint32(b[32:])}, binary.LittleEndian.Uint64(b[36:]),
	}
	if r.wanted == 0 {
		return partRequest{}, fmt.Errorf("%w: the request selects no part", errMalformed)
	}
	return r, nil
}

// encodeLater returns the answer of a busy member: the time after which to ask again.
func encodeLater(after time.Duration) []byte {
	return binary.LittleEndian.AppendUint32(nil, uint32(min(after, longestLater).Milliseconds()))
}

// decodeLater reports whether a member answered that it is busy, and the time after which to ask it
// again.
func decodeLater(answer []byte) (after time.Duration, later bool) {
	if len(answer) != laterSize {
		return 0, false
	}
	after = time.Duration(binary.LittleEndian.Uint32(answer)) * time.Millisecond
	return min(after, longestLater), true
}

// mostParts is the maximum number of parts in one answer.
const mostParts = 8

// encodeAnswer returns the bytes of an answer with parts: for each one size u32, little-endian ‖ part.
func encodeAnswer(parts [][]byte) (b []byte) {
	for _, part := range parts {
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(part))), part...)
	}
	return b
}

// decodeAnswer decodes the output of encodeAnswer.
func decodeAnswer(b []byte) (parts [][]byte, err error) {
	for len(b) > 0 {
		if len(b) < 4 || uint64(binary.LittleEndian.Uint32(b)) > uint64(len(b)-4) || len(parts) == mostParts {
			return nil, fmt.Errorf("%w: %d bytes after part %d of an answer", errMalformed, len(b), len(parts))
		}
		size := binary.LittleEndian.Uint32(b)
		parts, b = append(parts, b[4:4+size]), b[4+size:]
	}
	if len(parts) == 0 {
		return nil, fmt.Errorf("%w: empty answer", errMalformed)
	}
	return parts, nil
}

// PartsIn returns the number of parts in an answer of OpeningProtocol.
func PartsIn(answer []byte) int {
	if _, later := decodeLater(answer); later {
		return 0
	}
	parts, _ := decodeAnswer(answer)
	return len(parts)
}

// disclosure is a trainer's opening of a result, or one chunk of it, with the signature of its data server.
type disclosure struct {
	Receipt [64]byte // signature of the data server's receipt for the batch; zero without a data server
	Opening []byte   // in the encoding of package audit
}

// encode returns the bytes of a disclosure: signature [64] ‖ opening.
func (e disclosure) encode() []byte { return append(e.Receipt[:], e.Opening...) }

// decodeDisclosure decodes the output of disclosure.encode.
func decodeDisclosure(b []byte) (e disclosure, err error) {
	if len(b) < len(e.Receipt) {
		return e, fmt.Errorf("%w: the part has %d bytes, want at least %d", errMalformed, len(b), len(e.Receipt))
	}
	return disclosure{[64]byte(b), b[len(e.Receipt):]}, nil
}

// splitOpening returns the parts of an opening: for each chunk, in ascending order, the disclosure of that
// chunk alone. The roots in a result determine the bytes of each part.
func splitOpening(o audit.Opening, receipt [64]byte, shapes audit.Shapes) ([][]byte, error) {
	parts := make([][]byte, len(o.Chunks))
	for i := range o.Chunks {
		one := o
		one.Chunks = o.Chunks[i : i+1]
		opening, err := one.Encode(shapes)
		if err != nil {
			return nil, err
		}
		parts[i] = disclosure{receipt, opening}.encode()
	}
	return parts, nil
}

// maxPart returns the maximum size of a part, in bytes.
func maxPart(shapes audit.Shapes) int {
	return len(disclosure{}.Receipt) + audit.MaxOpeningSize(shapes, 1)
}

// allParts returns the bit set of n parts.
func allParts(n int) uint64 {
	if n >= 64 {
		return ^uint64(0)
	}
	return 1<<n - 1
}

// rank is the order in which clients are served; lower ranks are served first.
type rank uint8

const (
	rankJuror rank = iota // of an open trial
	rankMember
	rankNone // not served
)

// audience is the set of clients that may request openings.
type audience map[identity.ID]rank

func (a audience) rank(id identity.ID) rank {
	if r, known := a[id]; known {
		return r
	}
	return rankNone
}
