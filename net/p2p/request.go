package p2p

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"time"
	"unicode/utf8"

	"github.com/psyche-go/psyche/base/identity"
)

// Bounds of requests and responses.
const (
	// MaxResponse is the largest response a handler may give, in bytes.
	MaxResponse = 16 << 20

	requestTimeout  = 30 * time.Second // of one request, on both sides
	requestsPerPeer = 16
	// requestsTotal is more than a third of the members of the largest run, which is 256. Each
	// may hold a response in memory.
	requestsTotal = 96
	maxErrorText  = 512 // bytes of the text that goes with a refusal
)

// Status bytes of a response.
const (
	statusOK      = 0
	statusRefused = 1
)

// Errors of requests.
var (
	// ErrTooLarge says that a request or response is larger than allowed.
	ErrTooLarge = errors.New("message too large")
	// ErrRefused wraps what the other side's handler answered instead of a response.
	ErrRefused = errors.New("peer refused the request")
	// ErrMalformed says that the bytes of a message break the format.
	ErrMalformed = errors.New("malformed message")
)

// Handle serves a protocol of single requests and responses from members. Requests over
// maxRequest bytes are refused unread. h may run many times at once; its ctx ends after
// 30 s, with the node, or when the place is needed for a member that has fewer or, if the
// member takes the response slowly, for one that has none. The text of
// an error it returns goes to the other side, cut to 512 bytes.
func (n *Node) Handle(name string, maxRequest int, h func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)) {
	limits := StreamLimits{PerPeer: requestsPerPeer, Total: requestsTotal, Timeout: requestTimeout}
	n.handleStream(name, limits, func(from identity.ID, s Stream) (answerFunc, error) {
		request, err := readFrame(s, maxRequest)
		if err != nil {
			return nil, refuse(s, fmt.Errorf("read request: %w", err))
		}
		return func(ctx context.Context) error {
			response, err := h(ctx, from, request)
			if err == nil && len(response) > MaxResponse {
				err = fmt.Errorf("response of %d bytes: %w", len(response), ErrTooLarge)
			}
			if err != nil {
				return refuse(s, err)
			}
			return writeResponse(s, statusOK, response)
		}, nil
	})
	n.bulk.serve(name, nil)
}

func refuse(w io.Writer, reason error) error {
	text := reason.Error()
	if len(text) > maxErrorText {
		text = text[:maxErrorText]
	}
	return writeResponse(w, statusRefused, []byte(text))
}

// Request sends request to a member and returns its response, which is refused unread
// when it is over maxResponse bytes. It ends after 30 s or with ctx, whichever is first.
// Errors match ErrNotMember, ErrBusy, ErrRefused, ErrTooLarge, ErrMalformed or the end of
// ctx; others are of the connection.
func (n *Node) Request(ctx context.Context, to identity.ID, name string, request []byte, maxResponse int) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	s, err := n.OpenStream(ctx, to, name)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	defer stop()
	response, err := exchange(s, request, maxResponse)
	if err != nil {
		_ = s.Reset()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("%s request to %s: %w", name, to.Short(), err)
	}
	_ = s.Close()
	return response, nil
}

func exchange(s Stream, request []byte, maxResponse int) ([]byte, error) {
	// The other side may refuse before it has read everything; then the write fails or
	// stands still, and the answer says why.
	written := make(chan error, 1)
	go func() {
		err := writeFrame(s, nil, request)
		if err == nil {
			err = s.CloseWrite()
		}
		written <- err
	}()
	response, err := readResponse(s, maxResponse)
	if err != nil {
		_ = s.Reset() // releases the writer
	}
	if writeErr := <-written; writeErr != nil && err != nil && !errors.Is(err, ErrRefused) {
		err = errors.Join(err, writeErr)
	}
	return response, err
}

func readResponse(r io.Reader, maxResponse int) ([]byte, error) {
	var status [1]byte
	if _, err := io.ReadFull(r, status[:]); err != nil {
		return nil, fmt.Errorf("status: %w", err)
	}
	switch status[0] {
	case statusOK:
		return readFrame(r, maxResponse)
	case statusRefused:
		text, err := readFrame(r, maxErrorText)
		if err != nil {
			return nil, err
		}
		if !utf8.Valid(text) {
			text = bytes.ToValidUTF8(text, []byte("?"))
		}
		return nil, fmt.Errorf("%w: %q", ErrRefused, text)
	}
	return nil, fmt.Errorf("%w: response status %d", ErrMalformed, status[0])
}

func writeResponse(w io.Writer, status byte, payload []byte) error {
	return writeFrame(w, []byte{status}, payload)
}

// writeFrame writes prefix, the payload's length in 4 bytes big-endian, and the payload.
func writeFrame(w io.Writer, prefix, payload []byte) error {
	head := binary.BigEndian.AppendUint32(prefix, uint32(len(payload)))
	if _, err := w.Write(head); err != nil {
		return err
	}
	_, err := w.Write(payload)
	return err
}

// readFrame reads a length in 4 bytes big-endian and that many bytes. The buffer grows
// with what arrives, not with what the length promises.
func readFrame(r io.Reader, maxSize int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, fmt.Errorf("length: %w", err)
	}
	size := int64(binary.BigEndian.Uint32(head[:]))
	if size > int64(maxSize) {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, maxSize)
	}
	payload, err := io.ReadAll(io.LimitReader(r, size))
	if err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	if int64(len(payload)) != size {
		return nil, fmt.Errorf("payload: %d of %d bytes: %w", len(payload), size, io.ErrUnexpectedEOF)
	}
	return payload, nil
}
