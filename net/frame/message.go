package frame

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/release"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/follow"
)

// Version is the protocol version. Host and client must have the same version. A change of the data that
// members read, or of the results that they compute, also needs a new version: in one run, members
// with different programs would accuse each other.
const Version = 17

// helloDomain is the signature domain of a Hello.
const helloDomain = "psyche/tcp/hello/v9"

// maxReason is the maximum length of the text of a Refusal in bytes.
const maxReason = 512

// Challenge is the first frame of a connection. The client signs its Nonce.
type Challenge struct {
	Version uint8
	Nonce   [32]byte // random, new for every connection
}

// AppendTo appends the payload of the frame.
func (c Challenge) AppendTo(b []byte) []byte {
	return append(append(b, c.Version), c.Nonce[:]...)
}

// DecodeChallenge reads the payload of a Challenge. If the challenge has another version, its
// payload may be longer, and DecodeChallenge reads only the version.
func DecodeChallenge(payload []byte) (Challenge, error) {
	d := decoder{rest: payload}
	c := Challenge{Version: d.byte()}
	if c.Version != Version && d.err == nil {
		return c, nil
	}
	copy(c.Nonce[:], d.bytes(32))
	return c, d.end("challenge")
}

// Role is the client's role in the run.
type Role uint8

// Roles of a client.
const (
	RoleParticipant Role = iota + 1 // may train; its key has one such connection in the run
	RoleObserver                    // observes and administers
	RoleCreator                     // creates the run
	RoleLister                      // lists the runs of the server, and names none
)

// String returns the role's name.
func (r Role) String() string {
	switch r {
	case RoleParticipant:
		return "participant"
	case RoleObserver:
		return "observer"
	case RoleCreator:
		return "creator"
	case RoleLister:
		return "lister"
	default:
		return fmt.Sprintf("Role(%d)", uint8(r))
	}
}

// Hello identifies the client, its role, the run, and the client's addresses. The first Hello of a
// connection has Sequence 0. Later ones, with rising sequences, change Addrs.
type Hello struct {
	ID       identity.ID
	Sequence uint64
	Role     Role
	RunID    string
	Run      [32]byte // hash of the run; zero if the client does not know it yet
	Addrs    []string
}

// Sign appends the payload of a Hello frame. The signature covers the connection's challenge and the
// key that the server has proved on the connection. It is therefore valid only for this connection
// and server: a server cannot use it to answer the challenge of another server.
func (h Hello) Sign(b []byte, key identity.Key, nonce [32]byte, server identity.ID) []byte {
	h.ID = key.ID()
	start := len(b)
	b = append(b, h.ID[:]...)
	b = binary.LittleEndian.AppendUint64(b, h.Sequence)
	b = append(b, byte(h.Role), byte(len(h.RunID)))
	b = append(b, h.RunID...)
	b = append(b, h.Run[:]...)
	b = appendAddrs(b, h.Addrs)
	signature := key.Sign(helloDomain, signedHello(nonce, server, b[start:]))
	return append(b, signature[:]...)
}

// OpenHello verifies the signature over the connection's challenge and the server's own key, then
// reads the payload.
func OpenHello(payload []byte, nonce [32]byte, server identity.ID) (Hello, error) {
	if len(payload) < identity.IDSize+identity.SignatureSize || len(payload) > MaxHello {
		return Hello{}, fmt.Errorf("%w: hello has %d bytes", ErrMalformed, len(payload))
	}
	body := payload[:len(payload)-identity.SignatureSize]
	signature := [identity.SignatureSize]byte(payload[len(body):])
	id := identity.ID(body[:identity.IDSize])
	if !identity.Verify(id, helloDomain, signedHello(nonce, server, body), signature) {
		return Hello{}, fmt.Errorf("%w: the signature of the hello does not verify", ErrMalformed)
	}
	d := decoder{rest: body[identity.IDSize:]}
	h := Hello{ID: id, Sequence: d.uint64(), Role: Role(d.byte())}
	h.RunID = string(d.bytes(int(d.byte())))
	copy(h.Run[:], d.bytes(len(h.Run)))
	h.Addrs = d.addrs()
	if err := d.end("hello"); err != nil {
		return Hello{}, err
	}
	if h.Role < RoleParticipant || h.Role > RoleLister {
		return Hello{}, fmt.Errorf("%w: the hello has the unknown role %d", ErrMalformed, h.Role)
	}
	if len(h.RunID) > coordinator.MaxRunIDLength {
		return Hello{}, fmt.Errorf("%w: the hello's run id has %d bytes, at most %d", ErrMalformed, len(h.RunID), coordinator.MaxRunIDLength)
	}
	return h, nil
}

func signedHello(nonce [32]byte, server identity.ID, body []byte) []byte {
	signed := append(nonce[:], server[:]...)
	return append(signed, body...)
}

// maxWelcomeHead is the maximum size in bytes of a Welcome without its Genesis.
const maxWelcomeHead = identity.IDSize + 32 + 1 + release.MaxVersion + 1 + release.MaxAddress

// Welcome ends a successful handshake.
type Welcome struct {
	Host     identity.ID         // key that signs the host's actions
	Draws    [32]byte            // draw commitment for a run that is created now; zero for a client that creates none
	Requires release.Requirement // of clients that take part
	Genesis  []byte              // signed genesis of the run; empty for a client that creates a run
}

// AppendTo appends the payload of the frame.
func (w Welcome) AppendTo(b []byte) []byte {
	b = append(append(b, w.Host[:]...), w.Draws[:]...)
	return append(appendText(appendText(b, w.Requires.Version), w.Requires.Address), w.Genesis...)
}

// DecodeWelcome reads the payload of a Welcome. Genesis aliases it.
func DecodeWelcome(payload []byte) (Welcome, error) {
	d := decoder{rest: payload}
	var w Welcome
	copy(w.Host[:], d.bytes(identity.IDSize))
	copy(w.Draws[:], d.bytes(len(w.Draws)))
	w.Requires = release.Requirement{Version: d.text(release.MaxVersion), Address: d.text(release.MaxAddress)}
	if err := w.Requires.Check(); err != nil && d.err == nil {
		d.err = fmt.Errorf("%w: required version: %w", ErrMalformed, err)
	}
	w.Genesis = d.bytes(min(len(d.rest), follow.MaxGenesis))
	return w, d.end("welcome")
}

// RefusalCode is the reason why a host closes a connection.
type RefusalCode uint8

// Reasons of a Refusal. Retry reports whether a reason may be temporary.
const (
	RefusedMalformed    RefusalCode = iota + 1 // frame that the protocol does not allow
	RefusedVersion                             // another version of the protocol
	RefusedWrongRun                            // the host does not have the run
	RefusedDuplicateKey                        // another connection with this key is open
	RefusedBusy                                // too many connections
	RefusedTimeout                             // the client was too slow
	RefusedShutdown                            // the host is shutting down
	RefusedCreation                            // the host refuses to create this run
	RefusedPlace                               // the log is shorter than the client's copy
)

// Retry reports whether a later attempt can succeed without user action.
func (c RefusalCode) Retry() bool {
	return c == RefusedBusy || c == RefusedTimeout || c == RefusedShutdown
}

// Refusal is the last frame that a host sends before it closes a connection.
type Refusal struct {
	Code   RefusalCode
	Reason string
}

// AppendTo appends the payload of the frame. A long reason is truncated.
func (r Refusal) AppendTo(b []byte) []byte {
	return append(append(b, byte(r.Code)), r.Reason[:min(len(r.Reason), maxReason)]...)
}

// DecodeRefusal reads the payload of a Refusal. It quotes a reason that is not printable text,
// because programs show it to users.
func DecodeRefusal(payload []byte) (Refusal, error) {
	if len(payload) == 0 || len(payload) > 1+maxReason {
		return Refusal{}, fmt.Errorf("%w: refusal has %d bytes", ErrMalformed, len(payload))
	}
	return Refusal{Code: RefusalCode(payload[0]), Reason: Printable(string(payload[1:]))}, nil
}

// Printable returns text from the other side unchanged, or quoted if it contains control characters
// or other unprintable characters.
func Printable(text string) string {
	if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' }) {
		return fmt.Sprintf("%+q", text)
	}
	return text
}

// Submit asks the host to apply an action.
type Submit struct {
	Request uint64 // chosen by the client, repeated in the Ack
	Action  []byte // from wire.SignAction
}

// AppendTo appends the payload of the frame.
func (s Submit) AppendTo(b []byte) []byte {
	return append(binary.LittleEndian.AppendUint64(b, s.Request), s.Action...)
}

// DecodeSubmit reads the payload of a Submit. Action aliases it.
func DecodeSubmit(payload []byte) (Submit, error) {
	d := decoder{rest: payload}
	s := Submit{Request: d.uint64()}
	s.Action = d.rest
	return s, d.err
}

// Ack is the response to a Submit.
type Ack struct {
	Request uint64
	Code    coordinator.Code // 0: applied, and on the host's disk
	Reason  string           // details in addition to the code; may be empty
}

// AppendTo appends the payload of the frame. A long reason is truncated.
func (a Ack) AppendTo(b []byte) []byte {
	b = append(binary.LittleEndian.AppendUint64(b, a.Request), byte(a.Code))
	return append(b, a.Reason[:min(len(a.Reason), maxReason)]...)
}

// DecodeAck reads the payload of an Ack.
func DecodeAck(payload []byte) (Ack, error) {
	d := decoder{rest: payload}
	a := Ack{Request: d.uint64(), Code: coordinator.Code(d.byte())}
	a.Reason = string(d.bytes(min(len(d.rest), maxReason)))
	return a, d.end("ack")
}

// Err returns the refusal, or nil if the action was accepted. It quotes the host's text if it is not
// printable, because programs show it to users.
func (a Ack) Err() error {
	switch {
	case a.Code == 0:
		return nil
	case a.Reason == "":
		return a.Code
	default:
		return fmt.Errorf("%w: %s", a.Code, Printable(a.Reason))
	}
}

// AppendPeers appends the payload of a Peers frame. The peers must be in ascending order of their
// IDs.
func AppendPeers(b []byte, peers []backend.Peer) []byte {
	b = binary.LittleEndian.AppendUint16(b, uint16(len(peers)))
	for _, p := range peers {
		b = append(b, p.ID[:]...)
		b = appendText(appendAddrs(b, p.Addrs), p.Name)
	}
	return b
}

// DecodePeers reads the payload of a Peers frame.
func DecodePeers(payload []byte) ([]backend.Peer, error) {
	d := decoder{rest: payload}
	count := int(d.uint16())
	if count > backend.MaxPeers {
		return nil, fmt.Errorf("%w: %d peers, at most %d", ErrMalformed, count, backend.MaxPeers)
	}
	var peers []backend.Peer
	for i := range count {
		var p backend.Peer
		copy(p.ID[:], d.bytes(identity.IDSize))
		p.Addrs, p.Name = d.addrs(), d.text(coordinator.MaxMemberName)
		if d.err != nil {
			break
		}
		if i > 0 && bytes.Compare(peers[i-1].ID[:], p.ID[:]) >= 0 {
			return nil, fmt.Errorf("%w: peers are not in ascending order", ErrMalformed)
		}
		peers = append(peers, p)
	}
	if err := d.end("peers"); err != nil {
		return nil, err
	}
	return peers, nil
}

func appendText(b []byte, text string) []byte {
	return append(append(b, byte(len(text))), text...)
}

func appendAddrs(b []byte, addrs []string) []byte {
	b = append(b, byte(len(addrs)))
	for _, addr := range addrs {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(addr)))
		b = append(b, addr...)
	}
	return b
}

// decoder removes values from the front of rest. After the first error it returns zeros.
type decoder struct {
	rest []byte
	err  error
}

// bytes returns the next n bytes, which alias the payload.
func (d *decoder) bytes(n int) []byte {
	if d.err != nil || n > len(d.rest) {
		if d.err == nil {
			d.err = fmt.Errorf("%w: truncated", ErrMalformed)
		}
		return nil
	}
	taken := d.rest[:n]
	d.rest = d.rest[n:]
	return taken
}

func (d *decoder) byte() byte {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// text returns a length-prefixed text of at most limit bytes.
func (d *decoder) text(limit int) string {
	n := int(d.byte())
	if d.err == nil && n > limit {
		d.err = fmt.Errorf("%w: a text has %d bytes, at most %d", ErrMalformed, n, limit)
	}
	return string(d.bytes(n))
}

func (d *decoder) uint16() uint16 {
	if b := d.bytes(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (d *decoder) uint64() uint64 {
	if b := d.bytes(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) addrs() []string {
	count := int(d.byte())
	if count > backend.MaxAddrs && d.err == nil {
		d.err = fmt.Errorf("%w: %d addresses, at most %d", ErrMalformed, count, backend.MaxAddrs)
	}
	var addrs []string
	for range count {
		addr := string(d.bytes(int(d.uint16())))
		if d.err != nil {
			return nil
		}
		addrs = append(addrs, addr)
	}
	if err := backend.CheckAddrs(addrs); err != nil && d.err == nil {
		d.err = fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return addrs
}

// end returns the first error, or an error if bytes are left over.
func (d *decoder) end(subject string) error {
	if d.err == nil && len(d.rest) > 0 {
		d.err = fmt.Errorf("%w: %d bytes left over", ErrMalformed, len(d.rest))
	}
	if d.err != nil {
		return fmt.Errorf("%s: %w", subject, d.err)
	}
	return nil
}
