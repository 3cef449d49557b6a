package message

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/net/frame"
)

// Version is the protocol version. Both sides must have the same one.
const Version = 3

// helloDomain is the signature domain of a Hello.
const helloDomain = "psyche/data/hello/v1"

// Types of frames.
const (
	TypeChallenge frame.Type = iota + 0x41
	TypeHello
	TypeWelcome
	TypeRefusal
	TypeRequest
	TypeSample
	TypeFingerprint
	TypeDenied
	TypeReceipt
)

// MaxIntervals is the maximum number of intervals of a batch's sequences: the lost stretches that a round trains again,
// then its fresh sequences.
const MaxIntervals = coordinator.MaxRetries + 1

const requestHeader = 4 + 1 // number, kind

// Maximum number of bytes of a frame after the length.
const (
	MaxToServer = 1 + requestHeader + 16*MaxIntervals // a Hello is shorter
	maxReason   = 512
	MaxToClient = 1 + 5 + maxReason // for all frames except samples; see MaxSample
)

const sampleHeader = 4 + 8 + 1 // request, index, form

// MaxSample returns the limit for a frame with a sample of up to the given number of tokens.
func MaxSample(tokens int) int { return max(MaxToClient, 1+sampleHeader+3*4*tokens) }

// ErrMalformed means that the other side sent bytes that the protocol does not allow.
var ErrMalformed = frame.ErrMalformed

// Challenge is the first frame of a connection. The client signs its Nonce.
type Challenge struct {
	Version uint8
	Nonce   [32]byte // random, new for every connection
}

// AppendTo appends the payload of the frame.
func (c Challenge) AppendTo(b []byte) []byte { return append(append(b, c.Version), c.Nonce[:]...) }

// DecodeChallenge reads the payload of a Challenge. If the challenge has another version, which may
// be longer, it reads only the version.
func DecodeChallenge(payload []byte) (Challenge, error) {
	if len(payload) > 0 && payload[0] != Version {
		return Challenge{Version: payload[0]}, nil
	}
	if len(payload) != 1+32 {
		return Challenge{}, wrongSize("challenge", payload)
	}
	return Challenge{Version: payload[0], Nonce: [32]byte(payload[1:])}, nil
}

// Hello identifies the client and its run.
type Hello struct {
	ID    identity.ID
	RunID string
}

// SignHello returns the payload of a Hello frame. The signature is valid only for this connection
// with this server.
func SignHello(key identity.Key, runID string, nonce [32]byte, server identity.ID) []byte {
	id := key.ID()
	body := append(id[:], runID...)
	signature := key.Sign(helloDomain, signedHello(nonce, server, body))
	return append(body, signature[:]...)
}

// OpenHello verifies and reads the payload of a Hello.
func OpenHello(payload []byte, nonce [32]byte, server identity.ID) (Hello, error) {
	runID := len(payload) - identity.IDSize - identity.SignatureSize
	if runID < 1 || runID > coordinator.MaxRunIDLength {
		return Hello{}, wrongSize("hello", payload)
	}
	body := payload[:len(payload)-identity.SignatureSize]
	h := Hello{ID: identity.ID(body[:identity.IDSize]), RunID: string(body[identity.IDSize:])}
	signature := [identity.SignatureSize]byte(payload[len(body):])
	if !identity.Verify(h.ID, helloDomain, signedHello(nonce, server, body), signature) {
		return Hello{}, fmt.Errorf("%w: invalid signature of the hello message", ErrMalformed)
	}
	return h, nil
}

func signedHello(nonce [32]byte, server identity.ID, body []byte) []byte {
	signed := append(nonce[:], server[:]...)
	return append(signed, body...)
}

// Welcome ends a successful handshake.
type Welcome struct {
	SeqLen    uint32   // tokens of a sequence, without the additional token that is only a label
	Sequences uint64   // number of sequences of one pass
	Run       [32]byte // hash of the run in receipts
}

// AppendTo appends the payload of the frame.
func (w Welcome) AppendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(b, w.SeqLen), w.Sequences)
	return append(b, w.Run[:]...)
}

// DecodeWelcome reads the payload of a Welcome.
func DecodeWelcome(payload []byte) (Welcome, error) {
	if len(payload) != 4+8+32 {
		return Welcome{}, wrongSize("welcome", payload)
	}
	w := Welcome{SeqLen: binary.LittleEndian.Uint32(payload), Sequences: binary.LittleEndian.Uint64(payload[4:]), Run: [32]byte(payload[12:])}
	if w.SeqLen == 0 || w.Sequences == 0 {
		return Welcome{}, fmt.Errorf("%w: the welcome message announces %d sequences of %d tokens", ErrMalformed, w.Sequences, w.SeqLen)
	}
	return w, nil
}

// Kind is the kind of a Request.
type Kind uint8

// Kinds of requests.
const (
	Samples     Kind = iota + 1 // the samples of a batch, or of a part of it, with one Receipt
	Fingerprint                 // the hash of one sequence; see data.Fingerprint
)

// Request asks for data.
type Request struct {
	Number    uint32 // chosen by the client, repeated in the answer
	Kind      Kind
	Sequences []assign.BatchID // intervals in the order of the answer; see coordinator.Round.Sequences
}

// AppendTo appends the payload of the frame.
func (r Request) AppendTo(b []byte) []byte {
	b = append(binary.LittleEndian.AppendUint32(b, r.Number), byte(r.Kind))
	for _, interval := range r.Sequences {
		b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, interval.Start), interval.End)
	}
	return b
}

// DecodeRequest reads the payload of a Request.
func DecodeRequest(payload []byte) (Request, error) {
	n := (len(payload) - requestHeader) / 16
	if n < 1 || n > MaxIntervals || len(payload) != requestHeader+16*n {
		return Request{}, wrongSize("request", payload)
	}
	r := Request{Number: binary.LittleEndian.Uint32(payload), Kind: Kind(payload[4]), Sequences: make([]assign.BatchID, n)}
	for i := range r.Sequences {
		at := payload[requestHeader+16*i:]
		r.Sequences[i] = assign.BatchID{Start: binary.LittleEndian.Uint64(at), End: binary.LittleEndian.Uint64(at[8:])}
	}
	switch {
	case r.Kind != Samples && r.Kind != Fingerprint:
		return Request{}, fmt.Errorf("%w: unknown request kind %d", ErrMalformed, r.Kind)
	case !areIntervals(r.Sequences) || r.Kind == Fingerprint && r.Len() != 1:
		return Request{}, fmt.Errorf("%w: request for the invalid sequences %v", ErrMalformed, r.Sequences)
	}
	return r, nil
}

// Len returns the number of sequences.
func (r Request) Len() (n uint64) {
	for _, interval := range r.Sequences {
		n += interval.Len()
	}
	return n
}

// areIntervals reports whether no interval is empty or continues the one before it, and their lengths do not overflow.
func areIntervals(intervals []assign.BatchID) bool {
	total := uint64(0)
	for i, interval := range intervals {
		if interval.Start >= interval.End || i > 0 && intervals[i-1].End == interval.Start || interval.Len() > math.MaxUint64-total {
			return false
		}
		total += interval.Len()
	}
	return true
}

// Hash is the answer to a Request of the kind Fingerprint.
type Hash struct {
	Number uint32 // of the Request
	Hash   [32]byte
}

// AppendTo appends the payload of the frame.
func (h Hash) AppendTo(b []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(b, h.Number), h.Hash[:]...)
}

// DecodeHash reads the payload of a Hash.
func DecodeHash(payload []byte) (Hash, error) {
	if len(payload) != 4+32 {
		return Hash{}, wrongSize("fingerprint", payload)
	}
	return Hash{Number: binary.LittleEndian.Uint32(payload), Hash: [32]byte(payload[4:])}, nil
}

// Receipt ends the answer to a Request of the kind Samples. It has only those parts of a
// data.Receipt that the client cannot derive.
type Receipt struct {
	Number    uint32 // of the Request
	Hash      [32]byte
	Signature [identity.SignatureSize]byte
}

// AppendTo appends the payload of the frame.
func (r Receipt) AppendTo(b []byte) []byte {
	b = append(binary.LittleEndian.AppendUint32(b, r.Number), r.Hash[:]...)
	return append(b, r.Signature[:]...)
}

// DecodeReceipt reads the payload of a Receipt.
func DecodeReceipt(payload []byte) (Receipt, error) {
	if len(payload) != 4+32+identity.SignatureSize {
		return Receipt{}, wrongSize("receipt", payload)
	}
	return Receipt{
		Number: binary.LittleEndian.Uint32(payload), Hash: [32]byte(payload[4:]), Signature: [identity.SignatureSize]byte(payload[36:]),
	}, nil
}

// Sample is the part of the answer to a Request for one index. Labels and Positions are nil, or as
// long as Tokens; see data.Batch.
type Sample struct {
	Number                    uint32 // of the Request
	Index                     uint64
	Tokens, Labels, Positions []int32
}

// Bits of a sample's form. IDs have four bytes if one of them needs more than two.
const (
	formWide = 1 << iota
	formLabels
	formPositions
)

// AppendTo appends the payload of the frame.
func (s Sample) AppendTo(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(b, s.Number), s.Index)
	wide, form := needsFour(s.Tokens), byte(0)
	if wide {
		form |= formWide
	}
	if s.Labels != nil {
		form |= formLabels
	}
	if s.Positions != nil {
		form |= formPositions
	}
	b = append(b, form)
	for _, token := range s.Tokens {
		if wide {
			b = binary.LittleEndian.AppendUint32(b, uint32(token))
		} else {
			b = binary.LittleEndian.AppendUint16(b, uint16(token))
		}
	}
	for _, column := range [][]int32{s.Labels, s.Positions} {
		for _, value := range column {
			b = binary.LittleEndian.AppendUint32(b, uint32(value))
		}
	}
	return b
}

func needsFour(tokens []int32) bool {
	return slices.ContainsFunc(tokens, func(token int32) bool { return token < 0 || token > math.MaxUint16 })
}

// DecodeSample reads the payload of a Sample. Token IDs are not negative. The caller must check all
// other requirements.
func DecodeSample(payload []byte) (Sample, error) {
	if len(payload) < sampleHeader {
		return Sample{}, wrongSize("sample", payload)
	}
	s := Sample{Number: binary.LittleEndian.Uint32(payload), Index: binary.LittleEndian.Uint64(payload[4:])}
	form, rest := payload[12], payload[sampleHeader:]
	width, each := 2, 2
	if form&formWide != 0 {
		width, each = 4, 4
	}
	if form&formLabels != 0 {
		each += 4
	}
	if form&formPositions != 0 {
		each += 4
	}
	if form > formWide|formLabels|formPositions || len(rest) == 0 || len(rest)%each != 0 {
		return Sample{}, wrongSize("sample", payload)
	}
	n := len(rest) / each
	s.Tokens = make([]int32, n)
	for i := range s.Tokens {
		if width == 2 {
			s.Tokens[i] = int32(binary.LittleEndian.Uint16(rest[2*i:]))
		} else {
			s.Tokens[i] = int32(binary.LittleEndian.Uint32(rest[4*i:]))
		}
		if s.Tokens[i] < 0 {
			return Sample{}, fmt.Errorf("%w: token %d of sample %d is not a valid id", ErrMalformed, i, s.Index)
		}
	}
	if width == 4 && !needsFour(s.Tokens) {
		return Sample{}, fmt.Errorf("%w: sample %d uses 4 bytes per token, but 2 are enough", ErrMalformed, s.Index)
	}
	rest = rest[width*n:]
	if form&formLabels != 0 {
		s.Labels, rest = column(rest, n), rest[4*n:]
	}
	if form&formPositions != 0 {
		s.Positions = column(rest, n)
	}
	return s, nil
}

func column(raw []byte, n int) []int32 {
	values := make([]int32, n)
	for i := range values {
		values[i] = int32(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	return values
}

// Code is the reason why a server refuses a connection or denies a request.
type Code uint8

// Reasons of a Code. String returns their names.
const (
	Malformed   Code = iota + 1 // a frame that the protocol does not allow
	WrongRun                    // the server serves another run
	NotMember                   // the key is not a member of the run
	NotAssigned                 // the batch is not the client's in a round of the state, and not open for audits
	Repeated                    // the client got this batch, or batches of other members, too often
	Unavailable                 // the data cannot be read now
	BadData                     // the data is permanently wrong
	Replaced                    // a newer connection of the key has replaced this one
	TooSlow                     // the client did not send or read in time
	Stopping                    // the server stops
	NotTrained                  // a fingerprint of a sequence that no round has used yet
)

var names = [...]string{
	"", "malformed", "wrong run", "not a member", "not assigned", "repeated", "unavailable", "bad data",
	"replaced", "too slow", "stopping", "not trained",
}

// String returns the reason's name, which is also used in metrics.
func (c Code) String() string {
	if int(c) < len(names) && c > 0 {
		return names[c]
	}
	return fmt.Sprintf("code %d", uint8(c))
}

// Refusal is the last frame of a server before it closes the connection.
type Refusal struct {
	Code   Code
	Reason string // readable text
}

// AppendTo appends the payload of the frame. A long reason is truncated.
func (r Refusal) AppendTo(b []byte) []byte {
	return append(append(b, byte(r.Code)), r.Reason[:min(len(r.Reason), maxReason)]...)
}

// DecodeRefusal reads the payload of a Refusal. It quotes a reason that is not printable text,
// because programs show it to users.
func DecodeRefusal(payload []byte) (Refusal, error) {
	if len(payload) == 0 || len(payload) > 1+maxReason || payload[0] == 0 {
		return Refusal{}, wrongSize("refusal", payload)
	}
	return Refusal{Code: Code(payload[0]), Reason: frame.Printable(string(payload[1:]))}, nil
}

// Denied is the answer to a Request that is denied.
type Denied struct {
	Number uint32 // of the Request
	Refusal
}

// AppendTo appends the payload of the frame.
func (d Denied) AppendTo(b []byte) []byte {
	return d.Refusal.AppendTo(binary.LittleEndian.AppendUint32(b, d.Number))
}

// DecodeDenied reads the payload of a Denied.
func DecodeDenied(payload []byte) (Denied, error) {
	if len(payload) < 4 {
		return Denied{}, wrongSize("denial", payload)
	}
	refusal, err := DecodeRefusal(payload[4:])
	return Denied{Number: binary.LittleEndian.Uint32(payload), Refusal: refusal}, err
}

// Error is a server's refusal, as an error.
type Error Refusal

// Error implements error.
func (e *Error) Error() string {
	return fmt.Sprintf("the data server refused the request (%s): %s", e.Code, e.Reason)
}

// Is reports whether an error is a refusal for one of the reasons in codes.
func Is(err error, codes ...Code) bool {
	refused, ok := errors.AsType[*Error](err)
	return ok && slices.Contains(codes, refused.Code)
}

func wrongSize(name string, payload []byte) error {
	return fmt.Errorf("%w: %s message has an invalid length of %d bytes", ErrMalformed, name, len(payload))
}
