package blob

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p"
)

// Protocol is the protocol ID; see the package comment.
const Protocol = "/psyche/blob/1"

const (
	maxRange    = 4 << 20 // bytes of payload in one response
	requestSize = 32 + 8 + 8
	probeOffset = math.MaxUint64 // with length 0: requests the last group
	writeBuffer = 256 << 10      // bytes of a payload on disk per read
	oneWrite    = 32 << 10       // maximum size of a response that is sent with one write

	servesPerPeer = 16
	// servesTotal is the maximum number of concurrent answers. It is well over a third of 256, the
	// members of the largest run. Each answer may use a writeBuffer.
	servesTotal = 128
	// minRate is the lowest allowed rate of a range, in bytes per second: an eighth of a link of
	// 0.25 Mbit/s. A receiver detects a holder that stops much earlier, by its silence.
	minRate    = 4 << 10
	roundTrips = 20 * time.Second
)

// Status bytes of a response.
const (
	statusOK      = 0
	statusNotHeld = 1
	statusRange   = 2
)

var errRequest = errors.New("malformed blob request")

type request struct {
	hash           Hash
	offset, length uint64
}

func (r request) encode() []byte {
	raw := make([]byte, 0, requestSize)
	raw = append(raw, r.hash[:]...)
	raw = binary.LittleEndian.AppendUint64(raw, r.offset)
	return binary.LittleEndian.AppendUint64(raw, r.length)
}

func decodeRequest(raw []byte) (request, error) {
	if len(raw) != requestSize {
		return request{}, fmt.Errorf("%w: %d bytes, want %d", errRequest, len(raw), requestSize)
	}
	r := request{
		hash:   Hash(raw[:32]),
		offset: binary.LittleEndian.Uint64(raw[32:]),
		length: binary.LittleEndian.Uint64(raw[40:]),
	}
	switch probe := r.offset == probeOffset; {
	case probe && r.length != 0:
		return request{}, fmt.Errorf("%w: length %d without an offset", errRequest, r.length)
	case probe:
		return r, nil
	case r.length == 0 || r.length > maxRange:
		return request{}, fmt.Errorf("%w: length %d, want 1 to %d", errRequest, r.length, maxRange)
	case r.offset%groupSize != 0:
		return request{}, fmt.Errorf("%w: offset %d, want a multiple of %d", errRequest, r.offset, groupSize)
	}
	return r, nil
}

// within returns the requested range in a payload of size bytes.
func (r request) within(size uint64) (part span, ok bool) {
	if r.offset == probeOffset {
		offset, length := lastGroup(size)
		return span{offset, length}, true
	}
	if r.offset >= size || r.length > size-r.offset {
		return span{}, false
	}
	return span{r.offset, r.length}, r.length%groupSize == 0 || r.offset+r.length == size
}

// lastGroup returns the range of the last group, which is empty for an empty payload.
func lastGroup(size uint64) (offset, length uint64) {
	if size == 0 {
		return 0, 0
	}
	offset = (size - 1) / groupSize * groupSize
	return offset, size - offset
}

// Serve lets the members of n read the store's payloads, until n is closed.
func Serve(n *p2p.Node, s *Store) {
	limits := p2p.StreamLimits{PerPeer: servesPerPeer, Total: servesTotal, Timeout: allowance(maxRange), Request: requestSize}
	n.HandleBulk(Protocol, limits, func(ctx context.Context, _ identity.ID, stream p2p.Stream) error {
		return s.serve(stream, n.Throttle(ctx, stream))
	})
}

// allowance returns the time limit for a range of length bytes.
func allowance(length uint64) time.Duration {
	return roundTrips + time.Duration(length/minRate)*time.Second
}

func (s *Store) serve(r io.Reader, w io.Writer) error {
	var raw [requestSize]byte
	if _, err := io.ReadFull(r, raw[:]); err != nil {
		return fmt.Errorf("read blob request: %w", err)
	}
	request, err := decodeRequest(raw[:])
	if err != nil {
		return err
	}
	held, err := s.open(request.hash)
	if err != nil {
		_, err := w.Write([]byte{statusNotHeld})
		return err
	}
	defer held.close()
	part, ok := request.within(held.size)
	if !ok {
		_, err := w.Write([]byte{statusRange})
		return err
	}
	err = sendSlice(w, statusOK, held.data, held.outboard, part)
	if errors.Is(err, errUnread) { // the payload may have other holders
		_, err := w.Write([]byte{statusNotHeld})
		return err
	}
	if err != nil {
		return fmt.Errorf("send blob %s: %w", request.hash.short(), err)
	}
	return nil
}
