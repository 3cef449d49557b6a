package tcp

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
)

// ParseRun parses the hexadecimal hash of a run. It returns the zero value for an empty text.
func ParseRun(text string) (run [32]byte, err error) {
	if text == "" {
		return run, nil
	}
	raw, err := hex.DecodeString(text)
	if err != nil || len(raw) != len(run) {
		return run, fmt.Errorf("%q is not the hash of a run: want 64 hexadecimal digits, as psyche run status prints them", text)
	}
	if run = [32]byte(raw); run == [32]byte{} {
		return run, fmt.Errorf("%q is not the hash of a run; pass the hash that psyche run status prints, or omit it to accept the server's run", text)
	}
	return run, nil
}

// ErrNoLog means that a server keeps no journal of the run.
var ErrNoLog = errors.New("the server keeps no journal of the run")

// Create starts a run on the server and returns once the run is on the server's disk. genesis
// gets the server's key and returns the first state of the run, whose run id must be o.RunID. Create
// signs the state with o.Key and returns the hash of the run. It makes one attempt.
func Create(ctx context.Context, o Options, genesis func(host coordinator.ClientID) (coordinator.State, error)) (run [32]byte, err error) {
	err = withSession(ctx, o, frame.RoleCreator, func(s *session, host identity.ID) error {
		state, err := genesis(coordinator.ClientID(host))
		if err != nil {
			return err
		}
		state.DrawCommitment = s.draws
		var salt [32]byte
		if _, err := rand.Read(salt[:]); err != nil {
			return err
		}
		payload := follow.SignGenesis(o.Key, salt, state.AppendTo(nil))
		if len(payload) > follow.MaxGenesis {
			return fmt.Errorf("the run's first state has %d bytes, want at most %d", len(payload), follow.MaxGenesis)
		}
		run = wire.HostedRun(payload)
		if err := s.write(frame.TypeCreate, payload); err != nil {
			return err
		}
		payload, err = s.await(frame.TypeAck)
		if err != nil {
			return err
		}
		ack, err := frame.DecodeAck(payload)
		if err != nil {
			return err
		}
		return ack.Err()
	})
	if err != nil {
		return run, fmt.Errorf("create run %s on server %s: %w", o.RunID, o.Addr, err)
	}
	return run, nil
}

// Runs asks a server for a list of its runs. o need not name a run. all is the number of runs on
// the server, which may list only some of them. The answer is not verified. Runs makes one
// attempt.
func Runs(ctx context.Context, o Options) (runs []frame.RunSummary, all uint32, err error) {
	err = withSession(ctx, o, frame.RoleLister, func(s *session, _ identity.ID) error {
		payload, err := s.expect(frame.TypeRuns)
		if err == nil {
			runs, all, err = frame.DecodeRuns(payload)
		}
		return err
	})
	if err != nil {
		return nil, 0, fmt.Errorf("list the runs of server %s: %w", o.Addr, err)
	}
	return runs, all, nil
}

// ErrNoModel means that a server does not serve the requested model.
var ErrNoModel = errors.New("the server provides no model")

// ReadLog writes the run's journal, up to its size at the time of the call, to w. It makes one
// attempt. It calls arrives with its progress in bytes.
func ReadLog(ctx context.Context, o Options, w io.Writer, arrives func(done, all uint64)) error {
	return readLog(ctx, o, 0, w, arrives)
}

// ReadLogFrom is like ReadLog, but leaves out the first from bytes, which the caller already has.
func ReadLogFrom(ctx context.Context, o Options, from uint64, w io.Writer) error {
	return readLog(ctx, o, from, w, func(_, _ uint64) {})
}

func readLog(ctx context.Context, o Options, from uint64, w io.Writer, arrives func(done, all uint64)) error {
	err := withSession(ctx, o, frame.RoleObserver, func(s *session, _ identity.ID) error {
		size, err := uint64(0), error(nil)
		for offset := from; offset == from || offset < size; {
			var part frame.Log
			request := frame.ReadLog{Offset: offset}.AppendTo(nil)
			if part, err = s.readPart(frame.TypeReadLog, request, frame.TypeLog, offset); err != nil {
				return err
			}
			if offset == from {
				size = part.Size // ignore what the server appends in the meantime
			}
			if from > 0 && from == size {
				return nil
			}
			if from > size {
				return fmt.Errorf("%w: the log has %d bytes, but had %d before", ErrNoLog, size, from)
			}
			part.Part = part.Part[:min(uint64(len(part.Part)), size-offset)]
			if len(part.Part) == 0 {
				return ErrNoLog
			}
			if _, err := w.Write(part.Part); err != nil {
				return err
			}
			offset += uint64(len(part.Part))
			arrives(offset, size)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the log of run %s on server %s: %w", o.RunID, o.Addr, err)
	}
	return nil
}

// ReadModel writes a model to w, in the format of package modelarchive and at most limit bytes: the
// model with a digest that the run recorded, or for the zero digest the run's first model. It calls
// arrives with its progress in bytes. If the connection breaks, it continues with the next part over a
// new connection. It gives up when a new connection delivers nothing more.
func ReadModel(ctx context.Context, o Options, digest [32]byte, limit uint64, w io.Writer, arrives func(done, all uint64)) error {
	r := &modelReader{digest: digest, limit: limit, w: w, arrives: arrives}
	for {
		before := r.offset
		err := withSession(ctx, o, frame.RoleObserver, func(s *session, _ identity.ID) error { return r.read(s) })
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil, r.refused, r.offset == before, isPermanent(err):
			return fmt.Errorf("get the model of run %s from server %s: %w", o.RunID, o.Addr, err)
		}
	}
}

// modelReader is the state of a model download.
type modelReader struct {
	digest       [32]byte
	limit        uint64
	w            io.Writer
	arrives      func(done, all uint64)
	offset, size uint64
	refused      bool // a new connection would be refused too
}

// read continues the download over a connection.
func (r *modelReader) read(s *session) error {
	for r.offset == 0 || r.offset < r.size {
		request := frame.ReadModel{Offset: r.offset, Digest: r.digest}.AppendTo(nil)
		part, err := s.readPart(frame.TypeReadModel, request, frame.TypeModel, r.offset)
		if err != nil {
			return err
		}
		r.refused = true
		switch {
		case part.Size == 0:
			return ErrNoModel
		case part.Size > r.limit:
			return fmt.Errorf("the server's model has %d bytes, the limit is %d", part.Size, r.limit)
		case r.offset > 0 && part.Size != r.size:
			return fmt.Errorf("the server's model has changed: %d bytes, want %d", part.Size, r.size)
		case len(part.Part) == 0 || uint64(len(part.Part)) > part.Size-r.offset:
			return fmt.Errorf("%w: %d bytes at %d of %d", frame.ErrMalformed, len(part.Part), r.offset, part.Size)
		}
		if _, err := r.w.Write(part.Part); err != nil {
			return err
		}
		r.refused = false
		r.offset, r.size = r.offset+uint64(len(part.Part)), part.Size
		r.arrives(r.offset, r.size)
	}
	return nil
}

// readPart requests the part of the journal or of a model at an offset.
func (s *session) readPart(ask frame.Type, request []byte, want frame.Type, offset uint64) (frame.Log, error) {
	if err := s.write(ask, request); err != nil {
		return frame.Log{}, err
	}
	payload, err := s.await(want)
	if err != nil {
		return frame.Log{}, err
	}
	part, err := frame.DecodeLog(payload)
	if err == nil && part.Offset != offset {
		err = fmt.Errorf("%w: the answer is for offset %d, want %d", frame.ErrMalformed, part.Offset, offset)
	}
	return part, err
}

// await reads until a frame of the wanted type arrives. It skips states, peers and pings.
func (s *session) await(want frame.Type) ([]byte, error) {
	s.arriving.limit = frame.IdleTimeout
	for {
		kind, payload, err := s.reader.Next(frame.MaxToClient)
		if err != nil {
			return nil, err
		}
		switch kind {
		case want:
			return payload, nil
		case frame.TypePing, frame.TypeRefusal:
			if err := s.control(kind, payload); err != nil {
				return nil, err
			}
		case frame.TypeState, frame.TypePeers, frame.TypeStateDelta, frame.TypePeersDelta:
		default:
			return nil, fmt.Errorf("%w: type %d, want %d", frame.ErrMalformed, kind, want)
		}
	}
}

// withSession makes one connection, calls use and closes the connection.
func withSession(ctx context.Context, o Options, role frame.Role, use func(*session, identity.ID) error) error {
	check := o.checkRun
	if role == frame.RoleLister {
		check = o.check
	}
	if err := check(); err != nil {
		return err
	}
	c := &Client{options: o}
	dialer := net.Dialer{Timeout: frame.HandshakeTimeout}
	socket, err := dialer.DialContext(ctx, "tcp", o.Addr)
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	defer stop()
	s, err := handshake(ctx, socket, c.accept, o.Key, frame.Hello{Role: role, RunID: o.RunID, Run: o.Run})
	if err == nil {
		err = use(s, s.server)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
