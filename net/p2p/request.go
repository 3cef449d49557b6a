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
	// maxResponse is the maximum size of a response in bytes.
	maxResponse = 16 << 20

	// requestTimeout is the time limit of a request on either side. A large response may take
	// longer: as long as it takes at slowestAnswer, a sixteenth of a link of 0.25 Mbit/s in bytes
	// per second, but at most longestAnswer.
	requestTimeout = 30 * time.Second
	slowestAnswer  = 2 << 10
	longestAnswer  = 2 * time.Minute
	// confirmedSize is the minimum size of a response that the receiver confirms. The sender needs
	// the confirmation because a response may still be in its own buffers after it was written.
	confirmedSize = 4 << 10

	requestsPerPeer = 16
	// requestsTotal is the maximum number of requests that are served at the same time. It is more
	// than a third of 256, the members of the largest run. Each request may hold a response in
	// memory.
	requestsTotal = 96
	maxErrorText  = 512 // bytes of the text of a refusal

	// Requests of more than uncountedRequest bytes occupy memory from their first byte until their
	// answer: at most largeRequests bytes for each member, and at most allLargeRequests bytes in
	// total. The first limit suffices for two pushed results. The second limit suffices for one
	// pushed result from each of 255 members.
	uncountedRequest = 4 << 10
	largeRequests    = 1<<20 + 8<<10
	allLargeRequests = 128 << 20
)

// Status bytes of a response.
const (
	statusOK      = 0
	statusRefused = 1
)

// Errors of requests.
var (
	// ErrTooLarge means that a request or response exceeds its maximum size.
	ErrTooLarge = errors.New("message too large")
	// ErrRefused wraps the error text that the other side's handler returned.
	ErrRefused = errors.New("peer refused the request")
	// errMalformed means that the bytes of a message violate the format.
	errMalformed = errors.New("malformed message")
)

// Handle serves a protocol with single requests and responses from members. A request larger than
// maxRequest bytes is refused unread. h may run many times concurrently. Its ctx ends when the
// response has arrived at the other side. It ends earlier if h takes longer than 30 s, if the node
// closes, or if the queue evicts the request for another member. The queue evicts a request if a
// member with fewer requests needs the slot, or if the receiver is slow and a member without a slot
// needs it. The node refuses large requests that exceed its memory for requests. Responses count
// against Options.MaxUploadRate and take precedence over blobs. The text of an error that h returns
// goes to the other side, cut to 512 bytes.
func (n *Node) Handle(name string, maxRequest int, h func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)) {
	limits := StreamLimits{PerPeer: requestsPerPeer, Total: requestsTotal, Timeout: requestTime + requestTimeout + answerTime(maxResponse)}
	n.handleStream(name, limits, func(from identity.ID, s *pacedStream) (answerFunc, error) {
		request, err := n.readRequest(from, s, maxRequest)
		if errors.Is(err, errRefused) {
			return nil, err
		}
		if err != nil {
			return nil, refuse(s, fmt.Errorf("read request: %w", err))
		}
		return func(ctx context.Context) error {
			response, err := ask(ctx, h, from, request)
			if err == nil && len(response) > maxResponse {
				err = fmt.Errorf("response of %d bytes: %w", len(response), ErrTooLarge)
			}
			if err != nil {
				return refuse(s, err)
			}
			return n.respond(ctx, s, response)
		}, nil
	})
	n.bulk.serve(name, nil)
}

// readRequest reads a request. It returns errRefused if the request does not fit into the memory for
// requests.
func (n *Node) readRequest(from identity.ID, s *pacedStream, maxRequest int) ([]byte, error) {
	size, err := readSize(s, maxRequest)
	if err != nil {
		return nil, err
	}
	if size > uncountedRequest {
		if !n.requests.Take(from, size) {
			return nil, errRefused
		}
		s.request = size
	}
	return readPayload(s, size)
}

// ask calls a handler. Its ctx remains valid after the call, but ends if the call takes too long.
func ask(ctx context.Context, h func(context.Context, identity.ID, []byte) ([]byte, error), from identity.ID, request []byte) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	late := time.AfterFunc(requestTimeout, func() { cancel(context.DeadlineExceeded) })
	response, err := h(ctx, from, request)
	if late.Stop() {
		return response, err
	}
	return nil, context.DeadlineExceeded
}

// respond sends a response. If the response is large, respond waits until the other side confirms
// it. The time limit depends on the size.
func (n *Node) respond(ctx context.Context, s *pacedStream, response []byte) error {
	if len(response) < confirmedSize {
		return writeResponse(s, statusOK, response)
	}
	if err := s.until(time.Now().Add(requestTimeout + answerTime(len(response)))); err != nil {
		return err
	}
	if err := writeResponse(n.throttleLast(ctx, s), statusOK, response); err != nil {
		return err
	}
	_, err := s.Read(make([]byte, 1))
	if errors.Is(err, io.EOF) {
		return nil
	}
	return fmt.Errorf("response was not confirmed: %w", err)
}

// answerTime returns the time limit for a response in addition to requestTimeout.
func answerTime(size int) time.Duration {
	return min(time.Duration(size)*time.Second/slowestAnswer, longestAnswer)
}

func refuse(w io.Writer, reason error) error {
	text := reason.Error()
	if len(text) > maxErrorText {
		text = text[:maxErrorText]
	}
	return writeResponse(w, statusRefused, []byte(text))
}

// Request sends request to a member and returns the member's response. It refuses a response larger
// than maxResponse bytes without reading it. It ends with ctx, or after 30 s plus a second for every
// 2 KiB of maxResponse, at most two minutes. Requests of 4 KiB or more count against
// Options.MaxUploadRate, and let blobs go first.
//
// Errors match ErrNotMember, ErrBusy, ErrRefused, ErrTooLarge, errMalformed or the error of ctx;
// all others come from the connection.
func (n *Node) Request(ctx context.Context, to identity.ID, name string, request []byte, maxResponse int) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout+answerTime(maxResponse))
	defer cancel()
	s, err := n.OpenStream(ctx, to, name)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.Reset() })
	defer stop()
	w := io.Writer(s)
	if len(request) >= confirmedSize {
		w = n.throttleLast(ctx, s)
	}
	response, err := exchange(s, w, request, maxResponse)
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

// exchange writes a request to w, which writes to s, and reads the response.
func exchange(s Stream, w io.Writer, request []byte, maxResponse int) ([]byte, error) {
	// The other side may refuse before it has read everything. The write then fails or blocks, and
	// the response contains the reason.
	written := make(chan error, 1)
	go func() { written <- writeFrame(w, nil, request) }()
	response, err := readResponse(s, maxResponse)
	if err == nil {
		_ = s.CloseWrite() // confirms the response
	} else {
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
	return nil, fmt.Errorf("%w: response status %d", errMalformed, status[0])
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

// readFrame reads a length in 4 bytes big-endian and that many bytes. The buffer grows with the
// received bytes, not with the announced length.
func readFrame(r io.Reader, maxSize int) ([]byte, error) {
	size, err := readSize(r, maxSize)
	if err != nil {
		return nil, err
	}
	return readPayload(r, size)
}

func readSize(r io.Reader, maxSize int) (int, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, fmt.Errorf("length: %w", err)
	}
	size := int64(binary.BigEndian.Uint32(head[:]))
	if size > int64(maxSize) {
		return 0, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, size, maxSize)
	}
	return int(size), nil
}

func readPayload(r io.Reader, size int) ([]byte, error) {
	payload, err := io.ReadAll(io.LimitReader(r, int64(size)))
	if err != nil {
		return nil, fmt.Errorf("payload: %w", err)
	}
	if len(payload) != size {
		return nil, fmt.Errorf("payload: %d of %d bytes: %w", len(payload), size, io.ErrUnexpectedEOF)
	}
	return payload, nil
}
