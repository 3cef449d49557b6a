package frame

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/release"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/config"
	"github.com/psyche-go/psyche/record/follow"
)

var (
	testKey         = identity.FromSeed([identity.SeedSize]byte{1})
	testRequirement = release.Requirement{Version: "0.2.0", Address: "https://example.com"}
)

func TestReaderReturnsFrames(t *testing.T) {
	stream := Append(nil, TypePing, nil)
	stream = Append(stream, TypeState, []byte("state"))
	r := NewReader(iotest.OneByteReader(bytes.NewReader(stream)))
	for _, want := range []struct {
		kind    Type
		payload string
	}{{TypePing, ""}, {TypeState, "state"}} {
		kind, payload, err := r.Next(6)
		if err != nil || kind != want.kind || string(payload) != want.payload {
			t.Fatalf("got %d %q %v, want %+v", kind, payload, err, want)
		}
	}
	if _, _, err := r.Next(6); !errors.Is(err, io.EOF) {
		t.Fatalf("error %v, want EOF", err)
	}
}

func TestReaderRefuses(t *testing.T) {
	tests := []struct {
		name, stream string
		want         error
	}{
		{"empty frame", "\x00\x00\x00\x00", ErrMalformed},
		{"one byte over the limit", "\x00\x00\x00\x07\x04xxxxxx", ErrMalformed},
		{"4 GiB", "\xff\xff\xff\xff", ErrMalformed},
		{"a web browser", "GET / HTTP/1.1\r\n\r\n", ErrMalformed},
		{"ends in the length", "\x00\x00", io.ErrUnexpectedEOF},
		{"ends in the payload", "\x00\x00\x00\x05\x01x", io.ErrUnexpectedEOF},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if _, _, err := NewReader(strings.NewReader(test.stream)).Next(6); !errors.Is(err, test.want) {
				t.Fatalf("error %v, want %v", err, test.want)
			}
		})
	}
}

// TestReaderAllocatesWhatArrives checks that the announcement of a large frame does not allocate
// memory before the bytes arrive.
func TestReaderAllocatesWhatArrives(t *testing.T) {
	stream := "\x00\x0f\xff\xff\x04short"
	result := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, _, err := NewReader(strings.NewReader(stream)).Next(MaxToClient); err == nil {
				b.Fatal("accepted")
			}
		}
	})
	if got := result.AllocedBytesPerOp(); got > 8<<10 {
		t.Fatalf("%d bytes allocated for a frame after 6 bytes of it", got)
	}
}

func TestHelloRoundTrip(t *testing.T) {
	nonce := [32]byte{9}
	want := Hello{ID: testKey.ID(), Sequence: 3, Role: RoleObserver, RunID: "run", Addrs: []string{"/ip4/1.2.3.4/tcp/1", "/dns4/x"}}
	server := identity.ID{5}
	payload := want.Sign(nil, testKey, nonce, server)
	got, err := OpenHello(payload, nonce, server)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	if _, err := OpenHello(payload, [32]byte{8}, server); !errors.Is(err, ErrMalformed) {
		t.Fatalf("with a different challenge: %v", err)
	}
	if _, err := OpenHello(payload, nonce, identity.ID{6}); !errors.Is(err, ErrMalformed) {
		t.Fatalf("with a different server: %v", err)
	}
	for i := range payload {
		changed := bytes.Clone(payload)
		changed[i] ^= 1
		if _, err := OpenHello(changed, nonce, server); !errors.Is(err, ErrMalformed) {
			t.Fatalf("byte %d changed: %v", i, err)
		}
	}
	for n := range payload {
		if _, err := OpenHello(payload[:n], nonce, server); !errors.Is(err, ErrMalformed) {
			t.Fatalf("first %d bytes: %v", n, err)
		}
	}
}

// TestSignedHelloIsStillChecked signs hellos that our clients never send, and checks that they are
// refused.
func TestSignedHelloIsStillChecked(t *testing.T) {
	for name, hello := range map[string]Hello{
		"no role":       {},
		"unknown role":  {Role: RoleLister + 1},
		"long run id":   {Role: RoleParticipant, RunID: strings.Repeat("x", coordinator.MaxRunIDLength+1)},
		"many addrs":    {Role: RoleParticipant, Addrs: make([]string, backend.MaxAddrs+1)},
		"empty addr":    {Role: RoleParticipant, Addrs: []string{""}},
		"control bytes": {Role: RoleParticipant, Addrs: []string{"\x1b[2J"}},
	} {
		if _, err := OpenHello(hello.Sign(nil, testKey, [32]byte{}, identity.ID{}), [32]byte{}, identity.ID{}); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %v; want error ErrMalformed", name, err)
		}
	}
}

// TestWelcomeRefuses checks that a host cannot send a text to a client's terminal as a required version.
func TestWelcomeRefuses(t *testing.T) {
	for name, requires := range map[string]release.Requirement{
		"no version":   {Version: "\x1b[2J"},
		"long version": {Version: "0.2.0-" + strings.Repeat("x", release.MaxVersion)},
		"no address":   {Version: "0.2.0", Address: "https://example.com/$(id)"},
		"long address": {Version: "0.2.0", Address: "https://" + strings.Repeat("x", release.MaxAddress)},
	} {
		if _, err := DecodeWelcome(Welcome{Requires: requires}.AppendTo(nil)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %v; want error ErrMalformed", name, err)
		}
	}
	want := Welcome{Host: testKey.ID(), Draws: [32]byte{1}, Requires: testRequirement, Genesis: []byte("genesis")}
	payload := want.AppendTo(nil)
	if got, err := DecodeWelcome(payload); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v; want nil error and %+v", got, err, want)
	}
	head := len(payload) - len(want.Genesis)
	for n := range head {
		if _, err := DecodeWelcome(payload[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("first %d bytes: %v", n, err)
		}
	}
}

func TestLargestMessagesFitTheirCaps(t *testing.T) {
	addrs := make([]string, backend.MaxAddrs)
	for i := range addrs {
		addrs[i] = strings.Repeat("a", backend.MaxAddrsTotal/backend.MaxAddrs)
	}
	hello := Hello{Role: RoleParticipant, RunID: strings.Repeat("r", coordinator.MaxRunIDLength), Addrs: addrs}.Sign(nil, testKey, [32]byte{}, identity.ID{})
	if len(hello)+1 > MaxHello {
		t.Errorf("largest hello: %d bytes", len(hello))
	}
	requires := release.Requirement{Version: strings.Repeat("v", release.MaxVersion), Address: strings.Repeat("a", release.MaxAddress)}
	if welcome := (Welcome{Requires: requires, Genesis: make([]byte, follow.MaxGenesis)}).AppendTo(nil); len(welcome)+1 > MaxWelcome {
		t.Errorf("largest welcome: %d bytes", len(welcome))
	}
	peers := make([]backend.Peer, backend.MaxPeers)
	for i := range peers {
		peers[i] = backend.Peer{ID: identity.ID{byte(i >> 8), byte(i)}, Addrs: addrs, Name: strings.Repeat("n", coordinator.MaxMemberName)}
	}
	payload := AppendPeers(nil, peers)
	if len(payload)+1 > MaxToClient {
		t.Errorf("largest peers: %d bytes", len(payload))
	}
	got, err := DecodePeers(payload)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(peers, got); diff != "" {
		t.Fatal(diff)
	}
}

func TestDecodePeersRefusesDisorder(t *testing.T) {
	for name, peers := range map[string][]backend.Peer{
		"descending": {{ID: identity.ID{2}}, {ID: identity.ID{1}}},
		"twice":      {{ID: identity.ID{1}}, {ID: identity.ID{1}}},
		"too many":   make([]backend.Peer, backend.MaxPeers+1),
		"long name":  {{ID: identity.ID{1}, Name: strings.Repeat("n", coordinator.MaxMemberName+1)}},
	} {
		if _, err := DecodePeers(AppendPeers(nil, peers)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: got %v; want error ErrMalformed", name, err)
		}
	}
}

func TestRefusalTextIsSafeToShow(t *testing.T) {
	r, err := DecodeRefusal(Refusal{Code: RefusedBusy, Reason: "\x1b[31mred\xff"}.AppendTo(nil))
	if err != nil || r.Reason != `"\x1b[31mred\xff"` {
		t.Fatalf("got %q, %v; want nil error and r.Reason == `\"\\x1b[31mred\\xff\"`", r.Reason, err)
	}
	long := Refusal{Code: RefusedBusy, Reason: strings.Repeat("x", 2*maxReason)}.AppendTo(nil)
	if r, err := DecodeRefusal(long); err != nil || len(r.Reason) != maxReason {
		t.Fatalf("%d bytes, %v", len(r.Reason), err)
	}
}

func TestAckSaysWhy(t *testing.T) {
	for _, test := range []struct {
		ack  Ack
		want string
	}{
		{Ack{}, "<nil>"},
		{Ack{Code: coordinator.ErrFull}, coordinator.ErrFull.Error()},
		{Ack{Code: coordinator.ErrInvalidConfig, Reason: "total_steps is 0"}, coordinator.ErrInvalidConfig.Error() + ": total_steps is 0"},
		{Ack{Code: coordinator.ErrFull, Reason: "\x1b[2J"}, coordinator.ErrFull.Error() + `: "\x1b[2J"`},
	} {
		got, err := DecodeAck(test.ack.AppendTo(nil))
		if err != nil || got != test.ack {
			t.Fatalf("got %+v, %v; want nil error and %+v", got, err, test.ack)
		}
		if text := fmt.Sprint(got.Err()); text != test.want || test.ack.Code != 0 && !errors.Is(got.Err(), test.ack.Code) {
			t.Errorf("error %s, want %s", text, test.want)
		}
	}
	long := Ack{Code: coordinator.ErrFull, Reason: strings.Repeat("x", 2*maxReason)}
	if got, err := DecodeAck(long.AppendTo(nil)); err != nil || len(got.Reason) != maxReason {
		t.Fatalf("%d bytes, %v", len(got.Reason), err)
	}
}

// TestRunsRoundTrip checks that a list of runs is decoded as it was encoded, and that a list that
// is too long is cut.
func TestRunsRoundTrip(t *testing.T) {
	want := []RunSummary{
		{RunID: "a", Run: [32]byte{1}, State: coordinator.RoundTrain, Epoch: 1, Step: 1 << 20, Participants: 300, Name: "A run"},
		{RunID: strings.Repeat("b", coordinator.MaxRunIDLength), Closed: true, State: coordinator.Finished, Name: strings.Repeat("n", config.MaxName)},
	}
	payload := AppendRuns(nil, want)
	got, all, err := DecodeRuns(payload)
	if err != nil || all != 2 || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v of %d, %v", got, all, err)
	}
	for n := range payload {
		if _, _, err := DecodeRuns(payload[:n]); !errors.Is(err, ErrMalformed) {
			t.Errorf("of %d bytes: %v", n, err)
		}
	}
	many := make([]RunSummary, maxRuns+7)
	for i := range many {
		many[i].RunID = "r"
	}
	if got, all, err := DecodeRuns(AppendRuns(nil, many)); err != nil || len(got) != maxRuns || all != maxRuns+7 {
		t.Errorf("%d of %d, %v", len(got), all, err)
	}
	if full := AppendRuns(nil, slices.Repeat([]RunSummary{want[1]}, maxRuns)); len(full) != maxRunsSize || len(full)+1 > MaxWelcome {
		t.Errorf("a full list has %d bytes, the maximum is %d", len(full), MaxWelcome)
	}
}

func FuzzDecodeRuns(f *testing.F) {
	f.Add(AppendRuns(nil, nil))
	f.Add(AppendRuns(nil, []RunSummary{{RunID: "r", Closed: true, Epoch: 3}}))
	fuzztest.Run(f, func(t *testing.T, payload []byte) {
		runs, all, err := DecodeRuns(payload)
		if err == nil && int(all) == len(runs) && !bytes.Equal(AppendRuns(nil, runs), payload) {
			t.Errorf("%x was decoded as %+v", payload, runs)
		}
	})
}

// FuzzReader passes a stream to the reader and each frame to every decoder. It checks that whatever a
// decoder accepts has only one encoding.
func FuzzReader(f *testing.F) {
	f.Add(Append(nil, TypeChallenge, Challenge{Version: Version}.AppendTo(nil)))
	f.Add(Append(nil, TypeHello, Hello{Role: RoleParticipant, RunID: "r", Addrs: []string{"/x"}}.Sign(nil, testKey, [32]byte{}, identity.ID{})))
	f.Add(Append(nil, TypeAck, Ack{Request: 1, Code: 2}.AppendTo(nil)))
	f.Add(Append(nil, TypeSubmit, Submit{Request: 1, Action: []byte("a")}.AppendTo(nil)))
	f.Add(Append(nil, TypePeers, AppendPeers(nil, []backend.Peer{{ID: identity.ID{1}, Addrs: []string{"/a"}}})))
	f.Add(Append(nil, TypeWelcome, Welcome{Host: testKey.ID(), Genesis: []byte("genesis")}.AppendTo(nil)))
	f.Add(Append(nil, TypeWelcome, Welcome{Host: testKey.ID(), Requires: testRequirement, Genesis: []byte("genesis")}.AppendTo(nil)))
	f.Add(Append(nil, TypeReadLog, ReadLog{Offset: 7}.AppendTo(nil)))
	f.Add(Append(nil, TypeLog, Log{Offset: 7, Size: 9, Part: []byte("x")}.appendTo(nil)))
	f.Add(Append(nil, TypeModel, Log{Offset: 7, Size: 9, Part: []byte("x")}.appendTo(nil)))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	fuzztest.Run(f, func(t *testing.T, stream []byte) {
		r := NewReader(bytes.NewReader(stream))
		for {
			_, payload, err := r.Next(MaxToHost)
			if err != nil {
				return
			}
			checkDecoders(t, payload)
		}
	})
}

func checkDecoders(t *testing.T, payload []byte) {
	same := func(name string, encoded []byte, err error) {
		if err == nil && !bytes.Equal(encoded, payload) {
			t.Fatalf("%s: %x decodes, and encodes to %x", name, payload, encoded)
		}
		if err != nil && !errors.Is(err, ErrMalformed) {
			t.Fatalf("%s: %v", name, err)
		}
	}
	challenge, err := DecodeChallenge(payload)
	if challenge.Version == Version {
		same("challenge", challenge.AppendTo(nil), err)
	}
	welcome, err := DecodeWelcome(payload)
	same("welcome", welcome.AppendTo(nil), err)
	ack, err := DecodeAck(payload)
	same("ack", ack.AppendTo(nil), err)
	submit, err := DecodeSubmit(payload)
	same("submit", submit.AppendTo(nil), err)
	peers, err := DecodePeers(payload)
	same("peers", AppendPeers(nil, peers), err)
	readLog, err := DecodeReadLog(payload)
	same("read-log", readLog.AppendTo(nil), err)
	readModel, err := DecodeReadModel(payload)
	same("read-model", readModel.AppendTo(nil), err)
	log, err := DecodeLog(payload)
	same("log", log.appendTo(nil), err)
	if _, err := DecodeRefusal(payload); err != nil && !errors.Is(err, ErrMalformed) {
		t.Fatalf("refusal: %v", err)
	}
	if hello, err := OpenHello(payload, [32]byte{}, identity.ID{}); err == nil && hello.ID == testKey.ID() {
		same("hello", hello.Sign(nil, testKey, [32]byte{}, identity.ID{}), nil)
	}
	// The body of a hello without its signature, which a fuzzer cannot forge.
	d := decoder{rest: payload}
	addrs := d.addrs()
	if err := d.end("addrs"); err == nil {
		same("addrs", appendAddrs(nil, addrs), nil)
	}
}
