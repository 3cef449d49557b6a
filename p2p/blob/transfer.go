package blob

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"

	"lukechampine.com/blake3/bao"

	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/p2p"
)

// Errors of one holder.
var (
	// ErrCorrupt says that a holder sent bytes that do not belong to the hash. The
	// connection is authenticated and encrypted, so nobody but the holder did that.
	ErrCorrupt = errors.New("holder sent wrong bytes")
	// ErrSize says that a holder's payload has another size than the announced one. One
	// of the two is wrong, which one cannot be told from here.
	ErrSize = errors.New("holder claims another size")
	// ErrSlow says that a holder took longer than 10 s and 1 s for every 64 KiB.
	ErrSlow = errors.New("holder is too slow")
)

// span is a range of a payload: a multiple of 16 KiB, then at most 4 MiB.
type span struct{ offset, length uint64 }

// source is one holder as a transfer sees it.
type source struct {
	node   *p2p.Node
	holder identity.ID
	hash   Hash
}

// read asks for a range of a payload of size bytes and writes what is verified to w, in
// order.
func (s source) read(ctx context.Context, size uint64, r span, w io.Writer) error {
	return s.exchange(ctx, request{s.hash, r.offset, r.length}, func(body *bufio.Reader, claimed uint64) error {
		if claimed != size {
			return fmt.Errorf("%w: %d bytes, announced %d", ErrSize, claimed, size)
		}
		return s.decode(w, body, r)
	})
}

// probe returns the proven size of the payload.
func (s source) probe(ctx context.Context) (size uint64, err error) {
	err = s.exchange(ctx, request{s.hash, probeOffset, 0}, func(body *bufio.Reader, claimed uint64) error {
		if size = claimed; size == 0 {
			if s.hash != emptyHash {
				return fmt.Errorf("%w: it claims no bytes", ErrCorrupt)
			}
			return nil
		}
		offset, length := lastGroup(size)
		return s.decode(io.Discard, body, span{offset, length})
	})
	return size, err
}

func (s source) decode(w io.Writer, body io.Reader, r span) error {
	ok, err := bao.DecodeSlice(w, body, group, r.offset, r.length, s.hash)
	switch {
	case err != nil:
		return err
	case !ok:
		return ErrCorrupt
	}
	return nil
}

// exchange sends a request and hands the response's slice, whose size field has been
// looked at but not consumed, to decode.
func (s source) exchange(parent context.Context, r request, decode func(body *bufio.Reader, claimed uint64) error) error {
	ctx, cancel := context.WithTimeout(parent, allowance(r.length))
	defer cancel()
	stream, err := s.node.OpenStream(ctx, s.holder, Protocol)
	if err != nil {
		return timedOut(parent, ctx, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = stream.Reset() })
	defer stop()
	if err := s.receive(stream, r, decode); err != nil {
		_ = stream.Reset()
		return timedOut(parent, ctx, err)
	}
	_ = stream.Close()
	return nil
}

// timedOut names the end of a context as the cause of err where it is: the caller's own,
// or the time that one range may take.
func timedOut(parent, ctx context.Context, err error) error {
	switch {
	case errors.Is(err, ErrCorrupt) || errors.Is(err, ErrSize):
		return err
	case parent.Err() != nil:
		return parent.Err()
	case ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded):
		return ErrSlow
	}
	return err
}

func (s source) receive(stream p2p.Stream, r request, decode func(*bufio.Reader, uint64) error) error {
	if _, err := stream.Write(r.encode()); err != nil {
		return err
	}
	if err := stream.CloseWrite(); err != nil {
		return err
	}
	body := bufio.NewReaderSize(stream, bufferSize)
	status, err := body.ReadByte()
	if err != nil {
		return err
	}
	switch status {
	case statusOK:
	case statusNotHeld:
		return ErrNotHeld
	case statusRange:
		return fmt.Errorf("%w: it has no bytes [%d, %d)", ErrSize, r.offset, r.offset+r.length)
	default:
		return fmt.Errorf("%w: status %d", ErrCorrupt, status)
	}
	claimed, err := body.Peek(8)
	if err != nil {
		return err
	}
	return decode(body, binary.LittleEndian.Uint64(claimed))
}
