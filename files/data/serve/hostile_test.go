package serve_test

import (
	"bytes"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/data/remote"
	"github.com/psyche-go/psyche/files/data/remote/message"
	"github.com/psyche-go/psyche/files/data/serve"
	"github.com/psyche-go/psyche/net/admission"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/net/secure"
)

// peer is a client with arbitrary behaviour.
type peer struct {
	t      *testing.T
	socket *tls.Conn
	reader *frame.Reader
}

func newPeer(t *testing.T, r *running) *peer {
	t.Helper()
	socket, err := net.Dial("tcp", r.address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = socket.Close() })
	p := &peer{t: t, socket: secure.Client(socket, func(identity.ID) error { return nil })}
	p.reader = frame.NewReader(p.socket)
	if err := p.socket.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *peer) expect(want frame.Type) []byte {
	p.t.Helper()
	kind, payload, err := p.reader.Next(1 << 20)
	if err != nil || kind != want {
		p.t.Fatalf("got type %d, %v, want type %d", kind, err, want)
	}
	return bytes.Clone(payload)
}

// greet does the handshake as the client with key n.
func (p *peer) greet(n byte) *peer {
	p.t.Helper()
	challenge, err := message.DecodeChallenge(p.expect(message.TypeChallenge))
	if err != nil {
		p.t.Fatal(err)
	}
	p.send(message.TypeHello, message.SignHello(key(n), "run", challenge.Nonce, serverKey.ID()))
	p.expect(message.TypeWelcome)
	return p
}

func (p *peer) send(kind frame.Type, payload []byte) {
	p.t.Helper()
	if _, err := p.socket.Write(frame.Append(nil, kind, payload)); err != nil {
		p.t.Fatal(err)
	}
}

// refused checks that the server sends the reason and closes the connection.
func (p *peer) refused(want message.Code) {
	p.t.Helper()
	refusal, err := message.DecodeRefusal(p.expect(message.TypeRefusal))
	if err != nil || refusal.Code != want {
		p.t.Fatalf("refused: %+v, %v, want %v", refusal, err, want)
	}
	if _, _, err := p.reader.Next(1); !errors.Is(err, io.EOF) {
		p.t.Fatalf("the server did not hang up: %v", err)
	}
}

func TestHostileClients(t *testing.T) {
	server := start(t, memory{samples}, "127.0.0.1:0", func(o *serve.Options) { o.HandshakeTimeout = time.Second })
	s := state(3, 0, 1)
	server.Update(s, runHash)
	request := message.Request{Number: 1, Kind: message.Samples, Sequences: []assign.BatchID{owned(t, s, 1)}}.AppendTo(nil)
	for name, act := range map[string]func(p *peer){
		"a request before the hello": func(p *peer) {
			p.expect(message.TypeChallenge)
			p.send(message.TypeRequest, request)
			p.refused(message.Malformed)
		},
		"the hello of another connection": func(p *peer) {
			p.expect(message.TypeChallenge)
			p.send(message.TypeHello, message.SignHello(key(1), "run", [32]byte{}, serverKey.ID()))
			p.refused(message.Malformed)
		},
		"a hello without end": func(p *peer) {
			p.expect(message.TypeChallenge)
			if _, err := p.socket.Write([]byte{0, 0, 0, 100, byte(message.TypeHello)}); err != nil {
				t.Fatal(err)
			}
			p.refused(message.TooSlow)
		},
		"a frame of 4 GiB": func(p *peer) {
			p.greet(1)
			if _, err := p.socket.Write([]byte{255, 255, 255, 255, byte(message.TypeRequest)}); err != nil {
				t.Fatal(err)
			}
			p.refused(message.Malformed)
		},
		"an empty batch": func(p *peer) {
			p.greet(1).send(message.TypeRequest, message.Request{Number: 1, Kind: message.Samples, Sequences: []assign.BatchID{{Start: 3, End: 3}}}.AppendTo(nil))
			p.refused(message.Malformed)
		},
		"another type": func(p *peer) {
			p.greet(1).send(message.TypeSample, nil)
			p.refused(message.Malformed)
		},
		"the key connects again": func(p *peer) {
			p.greet(1)
			newPeer(t, server).greet(1)
			p.refused(message.Replaced)
		},
		"many requests at once": func(p *peer) {
			p.greet(1)
			for range 5 {
				p.send(message.TypeRequest, request)
			}
			for range 5 {
				for range owned(t, s, 1).Len() {
					p.expect(message.TypeSample)
				}
				p.expect(message.TypeReceipt)
			}
		},
	} {
		t.Run(name, func(t *testing.T) { act(newPeer(t, server)) })
	}
	if _, err := connect(t, options(server, 2)).Batch(t.Context(), owned(t, s, 2)); err != nil {
		t.Errorf("a different client: %v", err)
	}
}

// TestHalfOpenConnections takes all slots with silent connections, and checks that members can
// still connect.
func TestHalfOpenConnections(t *testing.T) {
	server := start(t, memory{samples}, "127.0.0.1:0", func(o *serve.Options) { o.HandshakeTimeout = time.Minute })
	s := state(1, 0, 1)
	server.Update(s, runHash)
	for range admission.MaxWaiting + 20 {
		socket, err := net.Dial("tcp", server.address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = socket.Close() })
	}
	o := options(server, 1)
	o.OpenTimeout = 20 * time.Second
	if _, err := connect(t, o).Batch(t.Context(), owned(t, s, 1)); err != nil {
		t.Fatal(err)
	}
}

const longSequence = 1 << 20 // tokens

// startLong starts a server with long sequences and with a time limit for each write.
func startLong(t *testing.T, limit time.Duration) (*running, *coordinator.State) {
	t.Helper()
	long := make([]int32, longSequence)
	server := start(t, memory{func(id assign.BatchID) (data.Batch, error) {
		b := data.Batch{ID: id}
		for range id.Len() {
			b.Sequences = append(b.Sequences, long)
		}
		return b, nil
	}}, "127.0.0.1:0", func(o *serve.Options) {
		o.WriteTimeout, o.SeqLen = limit, len(long)-1
	})
	s := state(1, 0, 1)
	server.Update(s, runHash)
	return server, s
}

// TestSlowReader requests a lot and reads nothing.
func TestSlowReader(t *testing.T) {
	server, s := startLong(t, 100*time.Millisecond)
	p := newPeer(t, server).greet(1)
	for range 8 {
		p.send(message.TypeRequest, message.Request{Number: 1, Kind: message.Samples, Sequences: []assign.BatchID{owned(t, s, 1)}}.AppendTo(nil))
	}
	deadline := time.Now().Add(20 * time.Second)
	for count(t, server, "requests_total", "samples", "too slow") == 0 {
		if time.Now().After(deadline) {
			t.Fatal("the client was not cut off")
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestSlowLink reads a long answer steadily, but much more slowly than the time limit of one write
// allows: the limit applies to every 16 KiB.
func TestSlowLink(t *testing.T) {
	server, s := startLong(t, 1500*time.Millisecond)
	p := newPeer(t, server).greet(1)
	p.send(message.TypeRequest, message.Request{Number: 1, Kind: message.Samples, Sequences: []assign.BatchID{owned(t, s, 1)}}.AppendTo(nil))
	want, read, begun := 4*4*longSequence, 0, time.Now()
	for piece := make([]byte, 64<<10); read < want; {
		n, err := p.socket.Read(piece)
		if read += n; err != nil {
			t.Fatalf("cut off after %d of %d bytes and %v: %v", read, want, time.Since(begun), err)
		}
		time.Sleep(time.Duration(n) * time.Second / (2 << 20)) // on the kernel's clock: reads 2 MiB per second
	}
}

// TestFewAnswersAreReported floods the server with requests that it answers. The server reports only some answers, so
// that events do not fill the disk.
func TestFewAnswersAreReported(t *testing.T) {
	const most, requests = 1000, 1500
	var reported atomic.Int32
	server := start(t, memory{samples}, "127.0.0.1:0", func(o *serve.Options) {
		o.RequestsPerSecond, o.Answered = 1000, func(serve.Answer) { reported.Add(1) }
	})
	server.Update(state(1, 0, 1), runHash)
	p := newPeer(t, server).greet(1)
	began := time.Now()
	request := message.Request{Number: 1, Kind: message.Fingerprint, Sequences: []assign.BatchID{{End: 1}}}.AppendTo(nil)
	for range requests {
		p.send(message.TypeRequest, request)
		p.expect(message.TypeFingerprint)
	}
	if got := reported.Load(); got < most || got > most+2+int32(time.Since(began)/time.Second) {
		t.Errorf("%d of %d answers were reported in %v, want about %d", got, requests, time.Since(began), most)
	}
}

// TestRequestsAreSlowedDown floods the server with requests.
func TestRequestsAreSlowedDown(t *testing.T) {
	server := start(t, memory{samples}, "127.0.0.1:0", func(o *serve.Options) { o.RequestsPerSecond = 2 })
	s := state(1, 0, 1)
	server.Update(s, runHash)
	p := newPeer(t, server).greet(1)
	began := time.Now()
	request := message.Request{Number: 1, Kind: message.Fingerprint, Sequences: []assign.BatchID{{Start: 0, End: 1}}}.AppendTo(nil)
	for range 22 {
		p.send(message.TypeRequest, request)
	}
	for range 22 {
		p.expect(message.TypeFingerprint)
	}
	if took := time.Since(began); took < 500*time.Millisecond {
		t.Errorf("22 requests took %v, want 20 at once, then 2 per second", took)
	}
}

// TestHostileServers sends a client answers that no honest server sends.
func TestHostileServers(t *testing.T) {
	for name, test := range map[string]struct {
		answer    func(r message.Request) (frame.Type, []byte)
		permanent bool
	}{
		"another index": {answer: func(r message.Request) (frame.Type, []byte) {
			return message.TypeSample, message.Sample{Number: r.Number, Index: 5, Tokens: []int32{1, 2}}.AppendTo(nil)
		}},
		"another request": {answer: func(r message.Request) (frame.Type, []byte) {
			return message.TypeSample, message.Sample{Number: r.Number + 1, Tokens: []int32{1, 2}}.AppendTo(nil)
		}},
		"a long sequence": {answer: func(r message.Request) (frame.Type, []byte) {
			return message.TypeSample, message.Sample{Number: r.Number, Tokens: make([]int32, seqLen+2)}.AppendTo(nil)
		}},
		"a huge frame":       {answer: func(message.Request) (frame.Type, []byte) { return message.TypeSample, make([]byte, 1<<20) }},
		"a denial of others": {answer: func(r message.Request) (frame.Type, []byte) { return message.TypeDenied, []byte{9, 9, 9, 9, 4} }},
		"an unknown token": {permanent: true, answer: func(r message.Request) (frame.Type, []byte) {
			return message.TypeSample, message.Sample{Number: r.Number, Tokens: []int32{1, 100}}.AppendTo(nil)
		}},
		"nothing": {answer: func(message.Request) (frame.Type, []byte) { return 0, nil }},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(&running{address: hostileServer(t, func(r message.Request) []byte {
				kind, payload := test.answer(r)
				if kind == 0 {
					return nil
				}
				return frame.Append(nil, kind, payload)
			})}, 1)
			o.VocabSize, o.Timeout = 100, 250*time.Millisecond
			_, err := connect(t, o).Batch(t.Context(), assign.BatchID{End: 2})
			if err == nil || data.IsPermanent(err) != test.permanent {
				t.Errorf("got %v; want an error and data.IsPermanent(err) == test.permanent", err)
			}
		})
	}
}

// TestFalseReceipts sends a client receipts that prove nothing.
func TestFalseReceipts(t *testing.T) {
	batch := data.Batch{ID: assign.BatchID{Start: 3, End: 4}, Sequences: [][]int32{{1, 2}}}
	good := data.SignReceipt(serverKey, runHash, []assign.BatchID{batch.ID}, batch.Hash())
	for name, receipt := range map[string]func(number uint32) message.Receipt{
		"of other tokens": func(n uint32) message.Receipt {
			other := data.SignReceipt(serverKey, runHash, []assign.BatchID{batch.ID}, [32]byte{1})
			return message.Receipt{Number: n, Hash: other.Hash, Signature: other.Signature}
		},
		"of another run": func(n uint32) message.Receipt {
			other := data.SignReceipt(serverKey, [32]byte{1}, []assign.BatchID{batch.ID}, good.Hash)
			return message.Receipt{Number: n, Hash: other.Hash, Signature: other.Signature}
		},
		"of another batch": func(n uint32) message.Receipt {
			other := data.SignReceipt(serverKey, runHash, []assign.BatchID{{Start: 4, End: 5}}, good.Hash)
			return message.Receipt{Number: n, Hash: other.Hash, Signature: other.Signature}
		},
		"of another request": func(n uint32) message.Receipt {
			return message.Receipt{Number: n + 1, Hash: good.Hash, Signature: good.Signature}
		},
		"good": func(n uint32) message.Receipt {
			return message.Receipt{Number: n, Hash: good.Hash, Signature: good.Signature}
		},
	} {
		t.Run(name, func(t *testing.T) {
			o := options(&running{address: hostileServer(t, func(r message.Request) []byte {
				sample := message.Sample{Number: r.Number, Index: 3, Tokens: batch.Sequences[0]}
				return frame.Append(frame.Append(nil, message.TypeSample, sample.AppendTo(nil)), message.TypeReceipt, receipt(r.Number).AppendTo(nil))
			})}, 1)
			o.Timeout = 250 * time.Millisecond
			got, err := connect(t, o).Batch(t.Context(), batch.ID)
			if want := name == "good"; (err == nil) != want || err != nil && !errors.Is(err, message.ErrMalformed) || want && !reflect.DeepEqual(*got.Receipt, good) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	o := options(&running{address: hostileServer(t, nil)}, 1)
	o.Run = func() [32]byte { return [32]byte{5} }
	if _, err := remote.Open(t.Context(), o); !errors.Is(err, data.ErrUnusable) {
		t.Errorf("a server of a different run with the same name: %v", err)
	}
}

// TestServerThatContradictsItself sends different tokens for the same sequences.
func TestServerThatContradictsItself(t *testing.T) {
	var contradicts atomic.Bool
	server := start(t, memory{func(id assign.BatchID) (data.Batch, error) {
		b, err := samples(id)
		if contradicts.Load() {
			b.Sequences[0][1] = 7
		}
		return b, err
	}}, "127.0.0.1:0", nil)
	s := state(1, 0, 1)
	server.Update(s, runHash)
	var log strings.Builder
	o := options(server, 1)
	o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	c := connect(t, o)
	first, err := c.Batch(t.Context(), owned(t, s, 1))
	if err != nil {
		t.Fatal(err)
	}
	contradicts.Store(true)
	if _, err := c.Batch(t.Context(), owned(t, s, 1)); !errors.Is(err, data.ErrOtherData) || !data.IsPermanent(err) {
		t.Errorf("got %v; want error data.ErrOtherData and data.IsPermanent(err)", err)
	}
	if !strings.Contains(log.String(), hex.EncodeToString(first.Receipt.Signature[:])) {
		t.Errorf("the log does not have the first receipt:\n%s", log.String())
	}
}

// hostileServer greets clients, and answers each request once before it closes the connection.
func hostileServer(t *testing.T, answer func(message.Request) []byte) string {
	t.Helper()
	config, err := secure.ServerConfig(serverKey)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", config)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	t.Cleanup(func() { _ = listener.Close(); <-done })
	go func() {
		defer close(done)
		for {
			socket, err := listener.Accept()
			if err != nil {
				return
			}
			_ = socket.SetDeadline(time.Now().Add(5 * time.Second))
			_, _ = socket.Write(frame.Append(nil, message.TypeChallenge, message.Challenge{Version: message.Version}.AppendTo(nil)))
			reader := frame.NewReader(socket)
			_, _, _ = reader.Next(message.MaxToServer)
			_, _ = socket.Write(frame.Append(nil, message.TypeWelcome, message.Welcome{SeqLen: seqLen, Sequences: 1000, Run: runHash}.AppendTo(nil)))
			if _, payload, err := reader.Next(message.MaxToServer); err == nil {
				if request, err := message.DecodeRequest(payload); err == nil {
					_, _ = socket.Write(answer(request))
				}
			}
			_ = socket.Close()
		}
	}()
	return listener.Addr().String()
}

// TestNoServerOfData connects to a server that is not a data server.
func TestNoServerOfData(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			socket, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = socket.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			_ = socket.Close()
		}
	}()
	o := options(&running{address: listener.Addr().String()}, 1)
	if _, err := remote.Open(t.Context(), o); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}
