package message

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/net/frame"
)

var (
	testKey = identity.FromSeed([identity.SeedSize]byte{1})
	testID  = identity.FromSeed([identity.SeedSize]byte{2}).ID()
	nonce   = [32]byte{31: 7}
)

// TestGolden pins the bytes of every message.
func TestGolden(t *testing.T) {
	var all strings.Builder
	for _, m := range []struct {
		name    string
		kind    frame.Type
		payload []byte
	}{
		{"challenge", TypeChallenge, Challenge{Version, nonce}.AppendTo(nil)},
		{"hello", TypeHello, SignHello(testKey, "run", nonce, testID)},
		{"welcome", TypeWelcome, Welcome{2048, 1 << 33, [32]byte{3, 31: 4}}.AppendTo(nil)},
		{"refusal", TypeRefusal, Refusal{WrongRun, "another run"}.AppendTo(nil)},
		{"request", TypeRequest, Request{7, Samples, []assign.BatchID{{Start: 5, End: 9}}}.AppendTo(nil)},
		{"request of several intervals", TypeRequest, Request{7, Samples, []assign.BatchID{{Start: 5, End: 9}, {Start: 2, End: 3}}}.AppendTo(nil)},
		{"request of a hash", TypeRequest, Request{8, Fingerprint, []assign.BatchID{{Start: 5, End: 6}}}.AppendTo(nil)},
		{"sample", TypeSample, Sample{7, 5, []int32{1, 2, 65535}, nil, nil}.AppendTo(nil)},
		{"wide sample", TypeSample, Sample{7, 6, []int32{1, 65536}, []int32{-100, 65536}, []int32{0, 1}}.AppendTo(nil)},
		{"hash", TypeFingerprint, Hash{8, [32]byte{1, 2}}.AppendTo(nil)},
		{"receipt", TypeReceipt, Receipt{7, [32]byte{1, 2}, [identity.SignatureSize]byte{63: 9}}.AppendTo(nil)},
		{"denial", TypeDenied, Denied{9, Refusal{NotAssigned, "not yours"}}.AppendTo(nil)},
	} {
		fmt.Fprintf(&all, "%s: %x\n", m.name, frame.Append(nil, m.kind, m.payload))
	}
	golden.Compare(t, "frames.txt", all.String())
}

func TestHelloIsBound(t *testing.T) {
	payload := SignHello(testKey, "run", nonce, testID)
	got, err := OpenHello(payload, nonce, testID)
	if err != nil || got != (Hello{testKey.ID(), "run"}) {
		t.Fatalf("got %+v, %v; want nil error and (Hello{testKey.ID(), \"run\"})", got, err)
	}
	for name, open := range map[string]func() (Hello, error){
		"another challenge": func() (Hello, error) { return OpenHello(payload, [32]byte{}, testID) },
		"another server":    func() (Hello, error) { return OpenHello(payload, nonce, testKey.ID()) },
		"another run": func() (Hello, error) {
			other := bytes.Clone(payload)
			other[identity.IDSize] ^= 1
			return OpenHello(other, nonce, testID)
		},
		"no run": func() (Hello, error) { return OpenHello(SignHello(testKey, "", nonce, testID), nonce, testID) },
		"a long run": func() (Hello, error) {
			return OpenHello(SignHello(testKey, strings.Repeat("x", 65), nonce, testID), nonce, testID)
		},
	} {
		if _, err := open(); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %v; want error ErrMalformed", name, err)
		}
	}
}

func TestSampleRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 20).Draw(t, "n")
		column := func(low, high int32) []int32 {
			return rapid.SliceOfN(rapid.Int32Range(low, high), n, n).Draw(t, "column")
		}
		s := Sample{Number: rapid.Uint32().Draw(t, "number"), Index: rapid.Uint64().Draw(t, "index")}
		s.Tokens = column(0, rapid.SampledFrom([]int32{100, 65535, 1<<31 - 1}).Draw(t, "most"))
		if rapid.Bool().Draw(t, "labels") {
			s.Labels = column(-100, 1<<31-1)
		}
		if rapid.Bool().Draw(t, "positions") {
			s.Positions = column(0, 100)
		}
		payload := s.AppendTo(nil)
		got, err := DecodeSample(payload)
		if diff := cmp.Diff(s, got); err != nil || diff != "" || 1+len(payload) > MaxSample(n) {
			t.Fatalf("%v\n%s", err, diff)
		}
	})
}

// TestRequests decodes requests for all kinds of intervals. A request is accepted only if no interval is empty or
// continues the one before it.
func TestRequests(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		index := rapid.OneOf(rapid.Uint64Range(0, 4), rapid.Just(uint64(math.MaxUint64)))
		r := Request{Number: rapid.Uint32().Draw(t, "number"), Kind: Samples}
		valid := true
		for i := range rapid.IntRange(0, MaxIntervals+1).Draw(t, "intervals") {
			interval := assign.BatchID{Start: index.Draw(t, "start"), End: index.Draw(t, "end")}
			valid = valid && interval.Start < interval.End && (i == 0 || r.Sequences[i-1].End != interval.Start)
			r.Sequences = append(r.Sequences, interval)
		}
		total := new(big.Int)
		for _, interval := range r.Sequences {
			total.Add(total, new(big.Int).SetUint64(interval.Len()))
		}
		valid = valid && len(r.Sequences) > 0 && len(r.Sequences) <= MaxIntervals && total.IsUint64()
		payload := r.AppendTo(nil)
		got, err := DecodeRequest(payload)
		if (err == nil) != valid || err != nil && !errors.Is(err, ErrMalformed) {
			t.Fatalf("%v: %v", r.Sequences, err)
		}
		if diff := cmp.Diff(r, got); valid && (diff != "" || 1+len(payload) > MaxToServer || got.Len() != total.Uint64()) {
			t.Fatalf("%d bytes: %s", len(payload), diff)
		}
	})
	if hello := 1 + len(SignHello(testKey, strings.Repeat("x", coordinator.MaxRunIDLength), nonce, testID)); hello > MaxToServer {
		t.Errorf("a Hello has up to %d bytes, more than a Request", hello)
	}
}

func TestOtherVersion(t *testing.T) {
	if got, err := DecodeChallenge([]byte{9, 1, 2}); err != nil || got.Version != 9 {
		t.Errorf("got %+v, %v; want nil error and got.Version == 9", got, err)
	}
	if _, err := DecodeChallenge([]byte{Version, 1}); !errors.Is(err, ErrMalformed) {
		t.Errorf("got %v; want error ErrMalformed", err)
	}
}

func TestReasonsAreCutAndQuoted(t *testing.T) {
	got, err := DecodeRefusal(Refusal{Malformed, strings.Repeat("x", 2*maxReason)}.AppendTo(nil))
	if err != nil || len(got.Reason) != maxReason {
		t.Errorf("%d bytes, %v", len(got.Reason), err)
	}
	if got, _ := DecodeRefusal([]byte("\x01\x1b[2Jx")); got.Reason != `"\x1b[2Jx"` {
		t.Errorf("got %s; want got.Reason == `\"\\x1b[2Jx\"`", got.Reason)
	}
	if len(names) != int(NotTrained)+1 || Code(200).String() != "code 200" {
		t.Error("a code has no name")
	}
}

// addFrames adds the payloads of the golden frames of a type as seeds.
func addFrames(f *testing.F, kind frame.Type) {
	text, err := os.ReadFile("testdata/frames.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		_, digits, _ := strings.Cut(strings.TrimSpace(line), ": ")
		raw, err := hex.DecodeString(digits)
		if err != nil {
			f.Fatal(err)
		}
		if frame.Type(raw[4]) == kind {
			f.Add(byte(kind), raw[5:])
		}
	}
}

// again encodes the decoded payload.
func again(kind frame.Type, payload []byte) (encoded []byte, err error) {
	switch kind {
	case TypeChallenge:
		c, err := DecodeChallenge(payload)
		if c.Version != Version {
			return payload, err
		}
		return c.AppendTo(nil), err
	case TypeWelcome:
		w, err := DecodeWelcome(payload)
		return w.AppendTo(nil), err
	case TypeRequest:
		r, err := DecodeRequest(payload)
		return r.AppendTo(nil), err
	case TypeSample:
		s, err := DecodeSample(payload)
		return s.AppendTo(nil), err
	case TypeReceipt:
		r, err := DecodeReceipt(payload)
		return r.AppendTo(nil), err
	case TypeFingerprint:
		h, err := DecodeHash(payload)
		return h.AppendTo(nil), err
	default:
		return nil, ErrMalformed
	}
}

// FuzzToServer decodes messages of clients. Each value must have exactly one encoding.
func FuzzToServer(f *testing.F) {
	addFrames(f, TypeRequest)
	addFrames(f, TypeHello)
	fuzztest.Run(f, func(t *testing.T, kind byte, payload []byte) {
		if frame.Type(kind) == TypeHello {
			if h, err := OpenHello(payload, nonce, testID); err == nil && h.ID == (identity.ID{}) {
				t.Fatalf("accepted %+v", h)
			}
			return
		}
		check(t, TypeRequest, payload)
	})
}

// FuzzToClient decodes messages of servers. Each value must have exactly one encoding, and texts
// must be safe to display.
func FuzzToClient(f *testing.F) {
	for _, kind := range []frame.Type{TypeChallenge, TypeWelcome, TypeRefusal, TypeSample, TypeFingerprint, TypeReceipt, TypeDenied} {
		addFrames(f, kind)
	}
	fuzztest.Run(f, func(t *testing.T, kind byte, payload []byte) {
		if d, err := DecodeDenied(payload); err == nil && strings.ContainsAny(d.Reason, "\x1b\n\x00") {
			t.Fatalf("reason %q", d.Reason)
		}
		check(t, frame.Type(kind), payload)
	})
}

func check(t *testing.T, kind frame.Type, payload []byte) {
	encoded, err := again(kind, payload)
	if err == nil && !bytes.Equal(encoded, payload) {
		t.Fatalf("%x became %x", payload, encoded)
	}
	if err != nil && !errors.Is(err, ErrMalformed) {
		t.Fatal(err)
	}
}
