package tcp

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/release"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/net/secure"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/follow"
)

// session is one connection after its handshake.
type session struct {
	socket    *tls.Conn
	server    identity.ID    // key that the server proved
	genesis   follow.Genesis // of the run; zero for a client that creates a run
	run       [32]byte       // hash of the run
	arriving  *arriving      // reads from socket
	buffer    *bufio.Reader  // reads from arriving
	reader    *frame.Reader  // reads from buffer
	role      frame.Role
	key       identity.Key
	certified uint64   // number of records at the start of the newest epoch that this client has signed
	nonce     [32]byte // of the challenge
	draws     [32]byte // of the Welcome
	requires  release.Requirement
	sequence  uint64   // of the newest Hello; guarded by Client.sending
	announced []string // addresses of the newest Hello; guarded by Client.sending

	writing sync.Mutex // a frame is written as a whole

	mu      sync.Mutex
	request uint64
	waiting map[uint64]chan error // answers by request; nil after the session ended
	ended   bool
}

// handshake proves the keys of both sides on a new connection. accept decides whether the client
// trusts the server's key. key signs hello. After an error the caller closes socket. With frame.RoleLister,
// handshake returns after the hello, and the server answers with the list of runs.
func handshake(ctx context.Context, socket net.Conn, accept func(identity.ID) error, key identity.Key, hello frame.Hello) (*session, error) {
	// When ctx ends, this unblocks the reads and writes below.
	stop := context.AfterFunc(ctx, func() { _ = socket.Close() })
	defer stop()
	if err := socket.SetDeadline(time.Now().Add(2 * frame.HandshakeTimeout)); err != nil {
		return nil, err
	}
	s := &session{role: hello.Role, key: key, announced: hello.Addrs, waiting: make(map[uint64]chan error)}
	s.socket = secure.Client(socket, func(found identity.ID) error {
		s.server = found
		return accept(found)
	})
	s.arriving = &arriving{socket: s.socket}
	s.buffer = bufio.NewReader(s.arriving)
	s.reader = frame.NewReader(s.buffer)
	payload, err := s.expect(frame.TypeChallenge)
	if err != nil {
		return nil, err
	}
	challenge, err := frame.DecodeChallenge(payload)
	if err != nil {
		return nil, err
	}
	if challenge.Version != frame.Version {
		return nil, fmt.Errorf("%w: the server speaks version %d of the protocol, this program version %d; use programs of the same release",
			ErrRefused, challenge.Version, frame.Version)
	}
	s.nonce = challenge.Nonce
	if err := s.write(frame.TypeHello, hello.Sign(nil, key, s.nonce, s.server)); err != nil {
		return nil, err
	}
	if hello.Role == frame.RoleLister {
		return s, nil
	}
	if payload, err = s.expect(frame.TypeWelcome); err != nil {
		return nil, err
	}
	welcome, err := frame.DecodeWelcome(payload)
	if err == nil && hello.Role != frame.RoleCreator {
		err = s.enter(hello.RunID, hello.Run, bytes.Clone(welcome.Genesis))
	}
	if err != nil {
		return nil, err
	}
	s.draws, s.requires = welcome.Draws, welcome.Requires
	return s, socket.SetDeadline(time.Time{})
}

// enter verifies the genesis of the run. The genesis must have the requested run id and name this
// server as its host. Its hash must equal wanted, unless wanted is zero.
func (s *session) enter(runID string, wanted [32]byte, genesis []byte) error {
	g, err := follow.OpenGenesis(genesis)
	if err != nil {
		return err
	}
	state, err := g.First()
	if err != nil {
		return err
	}
	s.genesis, s.run = g, g.Run()
	switch {
	case state.RunID != runID:
		return fmt.Errorf("%w: the server sent run %q, want %q", follow.ErrGenesis, state.RunID, runID)
	case identity.ID(state.Host) != s.server:
		return fmt.Errorf("%w: the run's host is %s, the server is %s", follow.ErrGenesis, identity.ID(state.Host), s.server)
	case wanted != ([32]byte{}) && s.run != wanted:
		return fmt.Errorf("%w: run %q has the hash %x, want %x", follow.ErrGenesis, runID, s.run, wanted)
	}
	return nil
}

// expect reads a frame of the given type. It returns an error for a refusal.
func (s *session) expect(want frame.Type) ([]byte, error) {
	kind, payload, err := s.reader.Next(frame.MaxWelcome)
	switch {
	case isNoTLS(err):
		return nil, fmt.Errorf("handshake: %w; is this the address of a run's server?", err)
	case err != nil:
		return nil, fmt.Errorf("handshake: %w", err)
	case kind == frame.TypeRefusal:
		return nil, refusal(payload)
	case kind != want:
		return nil, fmt.Errorf("handshake: %w: type %d, want %d; is this the address of a run's server?", frame.ErrMalformed, kind, want)
	}
	return payload, nil
}

// isNoTLS reports whether the other side does not speak TLS.
func isNoTLS(err error) bool {
	_, ok := errors.AsType[tls.RecordHeaderError](err)
	return ok
}

// errShorter means that the server's log ends before the client's position in it.
var errShorter = errors.New("the server's log is shorter than this client's")

// refusal converts a Refusal into an error.
func refusal(payload []byte) error {
	r, err := frame.DecodeRefusal(payload)
	switch {
	case err != nil:
		return err
	case r.Code == frame.RefusedWrongRun:
		return fmt.Errorf("%w: %s", backend.ErrWrongRun, r.Reason)
	case r.Code == frame.RefusedPlace:
		return fmt.Errorf("%w: %s", errShorter, r.Reason)
	case r.Code == frame.RefusedDuplicateKey:
		return fmt.Errorf("%w: %s", backend.ErrDuplicateKey, r.Reason)
	case r.Code.Retry():
		return fmt.Errorf("the server closed the connection: %s", r.Reason)
	default:
		return fmt.Errorf("%w: %s", ErrRefused, r.Reason)
	}
}

// read handles frames from the server until the session ends, and returns the reason. It calls
// update with each new state or list of peers, but skips a state that the next frames already
// supersede. If t is not nil, it derives the state from the log. Otherwise it trusts the server's
// state.
func (s *session) read(ctx context.Context, t *logCursor, update func(*coordinator.State, []backend.Peer)) error {
	stop := context.AfterFunc(ctx, func() { _ = s.socket.Close() })
	defer stop()
	var v view
	if t != nil {
		t.connect()
		v.log = t
		if err := s.write(frame.TypeFollow, frame.Follow{Index: t.log.Head().Index}.AppendTo(nil)); err != nil {
			return err
		}
	}
	s.arriving.limit = frame.IdleTimeout
	for {
		kind, payload, err := s.reader.Next(frame.MaxToClient)
		if err != nil {
			return err
		}
		switch kind {
		case frame.TypeAck, frame.TypePing, frame.TypeRefusal:
			err = s.control(kind, payload)
		default:
			err = v.apply(kind, payload)
		}
		if err != nil {
			return err
		}
		if err := s.certify(t); err != nil {
			return err
		}
		if !v.changed || !v.ready() || s.buffer.Buffered() > 0 {
			continue
		}
		v.changed = false
		state, err := v.newest()
		if err != nil {
			return fmt.Errorf("state of the run: %w", err)
		}
		update(&state, v.known)
	}
}

// certify signs the newest epoch in the log, once per epoch and connection. It does not check whether
// this client may certify the epoch: the server ignores the signature otherwise.
func (s *session) certify(t *logCursor) error {
	if t == nil || !t.signed {
		return nil
	}
	e := t.log.Epoch()
	if e.Index <= s.certified {
		return nil
	}
	s.certified = e.Index
	return s.write(frame.TypeSign, frame.Sign{Index: e.Index, Signature: e.Sign(s.key, s.run)}.AppendTo(nil))
}

// arriving reads from a socket. If limit is set, it applies to each read, not to a whole frame: on
// a slow link, a frame can take longer than the time that a server may be silent.
type arriving struct {
	socket *tls.Conn
	limit  time.Duration // 0: the caller sets deadlines
}

// Read implements io.Reader.
func (a *arriving) Read(b []byte) (int, error) {
	if a.limit > 0 {
		if err := a.socket.SetReadDeadline(time.Now().Add(a.limit)); err != nil {
			return 0, err
		}
	}
	return a.socket.Read(b)
}

// view is the newest encoded state and peers from the server.
type view struct {
	state, peers []byte
	known        []backend.Peer // decoded peers
	changed      bool           // since the last update
	log          *logCursor     // nil: the server's state is trusted
	following    coordinator.Decoder
}

// ready reports whether there is a state to show.
func (v *view) ready() bool {
	if v.log != nil {
		return v.log.signed
	}
	return len(v.state) > 0
}

// newest returns a state that the reader owns.
func (v *view) newest() (coordinator.State, error) {
	if v.log != nil {
		return v.log.log.State.Clone(), nil
	}
	return v.following.Decode(v.state)
}

// apply processes a state, a list of peers, or a change to one of them.
func (v *view) apply(kind frame.Type, payload []byte) (err error) {
	v.changed = true
	if v.log != nil {
		switch kind {
		case frame.TypeRecords:
			return v.log.take(payload)
		case frame.TypeCertificate:
			return v.log.pass(payload)
		case frame.TypeBase:
			return v.log.begin(payload)
		case frame.TypeWindow:
			v.log.window, err = frame.DecodeWindow(payload)
			return err
		case frame.TypeState, frame.TypeStateDelta:
			return nil
		}
	}
	switch kind {
	case frame.TypeState:
		v.state = append(v.state[:0], payload...)
	case frame.TypeStateDelta:
		v.state, err = frame.ApplyDelta(v.state, payload, frame.MaxToClient)
	case frame.TypePeers:
		v.peers = append(v.peers[:0], payload...)
		v.known, err = frame.DecodePeers(v.peers)
	case frame.TypePeersDelta:
		if v.peers, err = frame.ApplyDelta(v.peers, payload, frame.MaxToClient); err == nil {
			v.known, err = frame.DecodePeers(v.peers)
		}
	default:
		err = fmt.Errorf("%w: a server does not send type %d here", frame.ErrMalformed, kind)
	}
	return err
}

// control handles frames that do not change the view.
func (s *session) control(kind frame.Type, payload []byte) error {
	switch kind {
	case frame.TypeAck:
		ack, err := frame.DecodeAck(payload)
		if err != nil {
			return err
		}
		s.answer(ack)
		return nil
	case frame.TypePing:
		return s.write(frame.TypePong, nil)
	default:
		return refusal(payload)
	}
}

// write sends one frame.
func (s *session) write(kind frame.Type, payload []byte) error {
	s.writing.Lock()
	defer s.writing.Unlock()
	if err := s.socket.SetWriteDeadline(time.Now().Add(frame.WriteTimeout)); err != nil {
		return err
	}
	if _, err := s.socket.Write(frame.Append(nil, kind, payload)); err != nil {
		// The other side may have received part of a frame, so no other frame can follow.
		_ = s.socket.Close()
		return err
	}
	return nil
}

// submit sends a signed action. The returned channel delivers the answer. It is closed if the
// session ends first.
func (s *session) submit(action []byte) (uint64, <-chan error, error) {
	answer := make(chan error, 1)
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		return 0, nil, backend.ErrDisconnected
	}
	s.request++
	request := s.request
	s.waiting[request] = answer
	s.mu.Unlock()
	if err := s.write(frame.TypeSubmit, frame.Submit{Request: request, Action: action}.AppendTo(nil)); err != nil {
		s.forget(request)
		return 0, nil, fmt.Errorf("%w: %w", backend.ErrDisconnected, err)
	}
	return request, answer, nil
}

// answer passes an acknowledgement to the submission that waits for it.
func (s *session) answer(ack frame.Ack) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if answer := s.waiting[ack.Request]; answer != nil {
		answer <- ack.Err()
		delete(s.waiting, ack.Request)
	}
}

// forget stops waiting for an answer.
func (s *session) forget(request uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, request)
}

// announce sends new addresses.
func (s *session) announce(o Options, addrs []string) error {
	s.sequence++
	s.announced = addrs
	hello := frame.Hello{Sequence: s.sequence, Role: s.role, RunID: o.RunID, Run: s.run, Addrs: addrs}
	return s.write(frame.TypeHello, hello.Sign(nil, o.Key, s.nonce, s.server))
}

// end closes the connection and fails all waiting submissions.
func (s *session) end() {
	_ = s.socket.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for _, answer := range s.waiting {
		close(answer)
	}
	s.waiting = nil
}

// addressBook keeps the addresses of participants across restarts of the server. A restarted server
// learns an address only when the participant reconnects.
type addressBook struct {
	known  map[identity.ID]backend.Peer // only participants of the current state
	listed map[identity.ID]bool         // participants that the server has listed since the newest connection
}

// restart prepares for a connection to a server that may have lost its list.
func (b *addressBook) restart() { b.listed = make(map[identity.ID]bool) }

// merge returns the server's list, plus the healthy members and pending clients whose addresses the
// server has not learned again. It leaves out participants that the server has listed before on
// this connection and no longer lists: in a finished run, those have disconnected.
func (b *addressBook) merge(state *coordinator.State, peers []backend.Peer) []backend.Peer {
	current := make(map[identity.ID]backend.Peer, len(peers))
	for _, clients := range [][]coordinator.Client{state.Epoch.Clients, state.Pending} {
		for i := range clients {
			id := identity.ID(clients[i].ID)
			if peer := b.known[id]; peer.Addrs != nil && !b.listed[id] && clients[i].State == coordinator.Healthy {
				current[id] = peer
			}
		}
	}
	for _, p := range peers {
		current[p.ID], b.listed[p.ID] = p, true
	}
	b.known = current
	merged := make([]backend.Peer, 0, len(current))
	for _, id := range slices.SortedFunc(maps.Keys(current), func(a, b identity.ID) int { return bytes.Compare(a[:], b[:]) }) {
		peer := current[id]
		peer.Addrs = slices.Clone(peer.Addrs)
		merged = append(merged, peer)
	}
	return merged
}
