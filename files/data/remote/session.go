package remote

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/privatenet"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/data/remote/message"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/net/secure"
)

const (
	handshakeTimeout = 10 * time.Second
	// frameTimeout limits the wait for the next 16 KiB of an answer, or for the rest of a frame. It
	// is longer than a server takes to read its source.
	frameTimeout = 45 * time.Second
	pieceBytes   = 16 << 10
)

// errServerGone means that the connection ended.
var errServerGone = errors.New("the connection to the data server was lost")

// session is one connection after its handshake.
type session struct {
	socket   net.Conn
	arriving *arriving     // reads from socket
	reader   *frame.Reader // of arriving
	server   identity.ID
	welcome  message.Welcome
	number   uint32 // of the newest request
	limit    int    // maximum bytes of a frame
}

// arriving reads from a socket with a time limit of frameTimeout for every pieceBytes. The whole of
// a long sequence may take longer over a slow link.
type arriving struct {
	socket net.Conn
	piece  int // remaining bytes of the current piece; 0: the next read starts a piece
}

// Read implements io.Reader.
func (a *arriving) Read(b []byte) (int, error) {
	if a.piece <= 0 {
		if err := a.socket.SetReadDeadline(time.Now().Add(frameTimeout)); err != nil {
			return 0, err
		}
		a.piece = pieceBytes
	}
	n, err := a.socket.Read(b)
	a.piece -= n
	return n, err
}

// dial connects and performs the handshake.
func dial(ctx context.Context, o Options) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	socket, err := privatenet.Dialer(o.Inner).DialContext(ctx, "tcp", o.Addr)
	if err != nil {
		return nil, err
	}
	if o.wrap != nil {
		socket = o.wrap(socket)
	}
	s, err := handshake(ctx, socket, o)
	if err != nil {
		_ = socket.Close()
		return nil, err
	}
	return s, nil
}

func handshake(ctx context.Context, socket net.Conn, o Options) (*session, error) {
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	defer stop()
	var server identity.ID
	var untrusted error
	secured := secure.Client(socket, func(found identity.ID) error {
		server, untrusted = found, o.Trust(found)
		return untrusted
	})
	if err := secured.HandshakeContext(ctx); err != nil {
		if _, ok := errors.AsType[tls.RecordHeaderError](err); ok {
			err = fmt.Errorf("%w; is this the address of a data server?", err)
		}
		if untrusted != nil {
			err = fmt.Errorf("%w: %w", data.ErrUnusable, untrusted)
		}
		return nil, err
	}
	s := &session{
		socket: secured, server: server, arriving: &arriving{socket: secured}, limit: message.MaxToClient,
	}
	s.reader = frame.NewReader(bufio.NewReaderSize(s.arriving, pieceBytes))
	payload, err := s.expect(message.TypeChallenge)
	if err != nil {
		return nil, err
	}
	challenge, err := message.DecodeChallenge(payload)
	if err != nil {
		return nil, err
	}
	if challenge.Version != message.Version {
		return nil, fmt.Errorf("%w: the server uses protocol version %d, this program version %d; use programs of the same release",
			data.ErrUnusable, challenge.Version, message.Version)
	}
	if err := s.write(message.TypeHello, message.SignHello(o.Key, o.RunID, challenge.Nonce, server)); err != nil {
		return nil, err
	}
	if payload, err = s.expect(message.TypeWelcome); err != nil {
		return nil, err
	}
	if s.welcome, err = message.DecodeWelcome(payload); err != nil {
		return nil, err
	}
	if uint64(s.welcome.SeqLen) != uint64(o.SeqLen) {
		return nil, fmt.Errorf("%w: the server's sequences have %d tokens, but the run's have %d; set the server's seq_len to the run's max_seq_len",
			data.ErrUnusable, s.welcome.SeqLen, o.SeqLen)
	}
	if want := o.run(); want != ([32]byte{}) && s.welcome.Run != want {
		return nil, fmt.Errorf("%w: the data server serves another run named %q: hash %x, want %x", data.ErrUnusable, o.RunID, s.welcome.Run, want)
	}
	s.limit = message.MaxSample(o.SeqLen + 1)
	return s, nil
}

// expect reads a frame of the expected kind. For another kind it returns an error with the reason.
func (s *session) expect(want frame.Type) ([]byte, error) {
	s.arriving.piece = 0
	kind, payload, err := s.reader.Next(s.limit)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, fmt.Errorf("%w: the server sent no data for %v", errServerGone, frameTimeout)
	case err != nil && !errors.Is(err, frame.ErrMalformed):
		return nil, fmt.Errorf("%w: %w", errServerGone, err)
	case err != nil:
		return nil, err
	case kind == message.TypeRefusal:
		refusal, err := message.DecodeRefusal(payload)
		if err != nil {
			return nil, err
		}
		return nil, hungUp{(*message.Error)(&refusal)}
	case kind == message.TypeDenied:
		denied, err := message.DecodeDenied(payload)
		if err != nil {
			return nil, err
		}
		if denied.Number != s.number || s.number == 0 {
			return nil, fmt.Errorf("%w: the answer belongs to another request", message.ErrMalformed)
		}
		return nil, (*message.Error)(&denied.Refusal)
	case kind != want:
		return nil, fmt.Errorf("%w: type %d, want %d; is this the address of a data server?", message.ErrMalformed, kind, want)
	}
	return payload, nil
}

// hungUp is a refusal after which the connection ends.
type hungUp struct{ error }

func (h hungUp) Unwrap() error { return h.error }

func (s *session) write(kind frame.Type, payload []byte) error {
	if err := s.socket.SetWriteDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return fmt.Errorf("%w: %w", errServerGone, err)
	}
	if _, err := s.socket.Write(frame.Append(nil, kind, payload)); err != nil {
		return fmt.Errorf("%w: %w", errServerGone, err)
	}
	return nil
}

// request sends a request. The answer must be read with expect.
func (s *session) request(kind message.Kind, sequences ...assign.BatchID) error {
	s.number = max(s.number+1, 1)
	return s.write(message.TypeRequest, message.Request{Number: s.number, Kind: kind, Sequences: sequences}.AppendTo(nil))
}

// batch reads the answer to a request for samples.
func (s *session) batch(id assign.BatchID, from []assign.BatchID, o Options) (data.Batch, error) {
	if err := s.request(message.Samples, from...); err != nil {
		return data.Batch{}, err
	}
	batch := data.Batch{ID: id}
	for _, interval := range from {
		for index := interval.Start; index < interval.End; index++ {
			if err := s.sample(&batch, index, o); err != nil {
				return data.Batch{}, err
			}
		}
	}
	n := len(batch.Sequences)
	if l, p := len(batch.Labels), len(batch.Positions); l != 0 && l != n || p != 0 && p != n {
		return data.Batch{}, fmt.Errorf("%w: labels or positions are missing in some samples of batch %v", message.ErrMalformed, id)
	}
	receipt, err := s.receipt(batch, from)
	batch.Receipt = &receipt
	return batch, err
}

// sample reads the next sample of a batch.
func (s *session) sample(batch *data.Batch, index uint64, o Options) error {
	payload, err := s.expect(message.TypeSample)
	if err != nil {
		return err
	}
	sample, err := message.DecodeSample(payload)
	if err != nil {
		return err
	}
	if sample.Number != s.number || sample.Index != index {
		return fmt.Errorf("%w: sample %d of request %d, want %d of %d", message.ErrMalformed, sample.Index, sample.Number, index, s.number)
	}
	if err := o.check(sample); err != nil {
		return err
	}
	batch.Sequences = append(batch.Sequences, sample.Tokens)
	if sample.Labels != nil {
		batch.Labels = append(batch.Labels, sample.Labels)
	}
	if sample.Positions != nil {
		batch.Positions = append(batch.Positions, sample.Positions)
	}
	return nil
}

// receipt reads the server's receipt for a batch.
func (s *session) receipt(batch data.Batch, from []assign.BatchID) (data.Receipt, error) {
	payload, err := s.expect(message.TypeReceipt)
	if err != nil {
		return data.Receipt{}, err
	}
	signed, err := message.DecodeReceipt(payload)
	if err != nil {
		return data.Receipt{}, err
	}
	receipt := data.Receipt{Server: s.server, Run: s.welcome.Run, Sequences: from, Hash: signed.Hash, Signature: signed.Signature}
	switch {
	case signed.Number != s.number:
		return data.Receipt{}, fmt.Errorf("%w: the receipt belongs to another request", message.ErrMalformed)
	case signed.Hash != batch.Hash():
		return data.Receipt{}, fmt.Errorf("%w: the receipt for batch %v does not match its tokens", message.ErrMalformed, batch.ID)
	case !receipt.Verify():
		return data.Receipt{}, fmt.Errorf("%w: invalid signature of the receipt for batch %v", message.ErrMalformed, batch.ID)
	}
	return receipt, nil
}

// fingerprint reads the answer to a request for a hash.
func (s *session) fingerprint(index uint64) ([32]byte, error) {
	if err := s.request(message.Fingerprint, assign.BatchID{Start: index, End: index + 1}); err != nil {
		return [32]byte{}, err
	}
	payload, err := s.expect(message.TypeFingerprint)
	if err != nil {
		return [32]byte{}, err
	}
	hash, err := message.DecodeHash(payload)
	if err == nil && hash.Number != s.number {
		err = fmt.Errorf("%w: the answer belongs to another request", message.ErrMalformed)
	}
	return hash.Hash, err
}

func (s *session) close() { _ = s.socket.Close() }
