package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/psyche-go/psyche/record/follow"
)

// Maximum number of bytes after the length, by direction.
const (
	MaxToHost   = 64 << 10                                               // from a client
	MaxHello    = 2 << 10                                                // from a client that has not identified itself yet
	MaxToClient = 1 << 20                                                // from a host
	MaxWelcome  = 1 + max(maxWelcomeHead+follow.MaxGenesis, maxRunsSize) // from a host that is not verified yet
)

// A host sends a Ping every PingInterval. Each side considers the connection dead if it received
// nothing for IdleTimeout. A handshake takes at most HandshakeTimeout, a write at most
// WriteTimeout.
const (
	PingInterval     = 2 * time.Second
	IdleTimeout      = 8 * time.Second
	HandshakeTimeout = 5 * time.Second
	WriteTimeout     = 5 * time.Second
)

// LongestPause is the maximum time that a client waits between two attempts to reconnect. A host
// that restarts must therefore wait this long for its clients.
const LongestPause = 7500 * time.Millisecond

// ErrMalformed means that the other side sent bytes that the protocol does not allow.
var ErrMalformed = errors.New("malformed frame")

// Type is the type of a frame's payload.
type Type uint8

// Types of frames.
const (
	TypeChallenge Type = iota + 1
	TypeWelcome
	TypeRefusal
	TypeState // canonical bytes of a coordinator.State
	TypePeers
	TypeAck
	TypePing // no payload
	TypePong // no payload
	TypeHello
	TypeSubmit
	TypeStateDelta // difference to the previous State, from AppendDelta
	TypePeersDelta // difference to the previous Peers
	TypeCreate
	TypeReadLog
	TypeLog
	TypeFollow
	TypeRecords
	TypeWindow
	TypeSign
	TypeCertificate // encoded by follow.Certificate.AppendTo
	TypeBase        // canonical bytes of the state at the newest certificate
	TypeReadModel   // like ReadLog, for a model that the host serves
	TypeModel       // like Log, for a model that the host serves
	TypeRuns        // ends the handshake of a client that lists the runs
)

const lengthSize = 4

// Append appends a frame to b.
func Append(b []byte, t Type, payload []byte) []byte {
	return append(AppendHead(b, t, len(payload)), payload...)
}

// AppendHead appends the part of a frame before a payload of size bytes.
func AppendHead(b []byte, t Type, size int) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(1+size))
	return append(b, byte(t))
}

// Reader reads frames into one buffer. The buffer grows with the received bytes, not with an
// announced length.
type Reader struct {
	r      io.Reader
	buffer bytes.Buffer
}

// NewReader returns a Reader that reads from r, which should be buffered.
func NewReader(r io.Reader) *Reader { return &Reader{r: r} }

// Next reads a frame with at most limit bytes after the length. The payload is valid until the next
// call. io.EOF means that the other side closed the connection between two frames.
func (r *Reader) Next(limit int) (Type, []byte, error) {
	var prefix [lengthSize]byte
	if _, err := io.ReadFull(r.r, prefix[:]); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(prefix[:])
	if length == 0 {
		return 0, nil, fmt.Errorf("%w: empty frame", ErrMalformed)
	}
	if int64(length) > int64(limit) {
		return 0, nil, fmt.Errorf("%w: %d bytes, at most %d are allowed here", ErrMalformed, length, limit)
	}
	r.buffer.Reset()
	if _, err := io.CopyN(&r.buffer, r.r, int64(length)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	content := r.buffer.Bytes()
	return Type(content[0]), content[1:], nil
}
