package server

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/net/secure"
	"github.com/psyche-go/psyche/record/backend/backendtest"
)

// TestTrickledHandshakesAreCutOff sends one byte per second of a TLS handshake, and then of a
// hello. Each byte arrives in time, but the whole does not.
func TestTrickledHandshakesAreCutOff(t *testing.T) {
	trickle := func(t *testing.T, to io.Writer, b []byte) {
		var trickling sync.WaitGroup
		t.Cleanup(trickling.Wait)
		trickling.Go(func() {
			for i := range b {
				if _, err := to.Write(b[i : i+1]); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		})
	}
	bubble(t, nil, func(t *testing.T, connect func() *peer) {
		began := time.Now()
		socket := connect().raw()
		trickle(t, socket, append([]byte{22, 3, 1, 2, 0, 1}, make([]byte, 100)...)) // a client hello of 512 bytes
		_, _ = io.Copy(io.Discard, socket)
		if took := time.Since(began); took > frame.HandshakeTimeout+closeTimeout {
			t.Errorf("TLS: cut off after %v", took)
		}
		began = time.Now()
		p := connect()
		p.challenge()
		hello := frame.Hello{Role: frame.RoleParticipant, RunID: hostileRun}.Sign(nil, backendtest.Key(1), p.nonce, p.server)
		trickle(t, p.socket, frame.Append(nil, frame.TypeHello, hello))
		p.refused(frame.RefusedTimeout)
		if took := time.Since(began); took != frame.HandshakeTimeout {
			t.Errorf("hello: cut off after %v", took)
		}
		works(t, connect)
	})
}

// TestFloodOfJoinsIsSlowedDown lets many keys join and leave. Each key may do so, but all of them
// together make the journal grow at most at the rate of one run. Other actions are not delayed.
func TestFloodOfJoinsIsSlowedDown(t *testing.T) {
	bubble(t, func(o *Options) { o.JoinsPerSecond, o.JoinsAtOnce = 2, 2*secondsOfBurst }, func(t *testing.T, connect func() *peer) {
		const keys, joins = 10, 4
		calm := connect().enter(100)
		calm.submit(coordinator.Join{})
		began := time.Now()
		var flood sync.WaitGroup
		for n := range byte(keys) {
			p := connect().enter(1 + n)
			flood.Go(func() {
				for range joins {
					p.submit(coordinator.Join{})
					p.submit(coordinator.Withdraw{Client: coordinator.ClientID(p.key.ID())})
				}
			})
		}
		time.Sleep(time.Second)
		asked := time.Now()
		calm.submit(coordinator.Ready{})
		if took := time.Since(asked); took > 100*time.Millisecond {
			t.Errorf("during the flood a different action took %v", took)
		}
		go calm.alive()
		flood.Wait()
		want := (keys*joins + 1 - 2*secondsOfBurst) * time.Second / 2
		if took := time.Since(began); took < want-time.Second || took > want+time.Second {
			t.Errorf("%d joins took %v, want about %v", keys*joins, took, want)
		}
	})
}

// TestHostileConnectionsHaveBoundedMemory lets many connections use as much memory as they can.
// Each sends a frame of maximum size that is never complete, and reads nothing that the server
// sends.
func TestHostileConnectionsHaveBoundedMemory(t *testing.T) {
	const connections, perConnection = 100, 256 << 10
	o := Options{
		Runs: []Genesis{backendtest.Genesis(hostileRun, 3)}, Listen: "127.0.0.1:0", WithdrawGrace: -1,
		Limits: Limits{MaxUnknown: connections + 1},
	}
	ready := make(chan net.Addr, 1)
	o.Ready = func(a net.Addr) { ready <- a }
	ctx, cancel := context.WithCancel(t.Context())
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := Run(ctx, o); err != nil {
			t.Error(err)
		}
	})
	defer serving.Wait()
	defer cancel()
	address := (<-ready).String()
	announced := binary.BigEndian.AppendUint32(nil, frame.MaxToHost)
	announced = append(announced, byte(frame.TypeSubmit))
	rest := make([]byte, frame.MaxToHost-2) // the last byte is never sent
	before := memoryInUse()
	for i := range connections {
		socket, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = socket.Close() }()
		secured := enterAs(t, socket, identity.FromSeed([identity.SeedSize]byte{byte(i), byte(i >> 8), 9}))
		if _, err := secured.Write(append(announced[:len(announced):len(announced)], rest...)); err != nil {
			t.Fatal(err)
		}
	}
	// The kernel passes the sent bytes to the server with a delay.
	for used, last := memoryInUse(), uint64(0); used > last; used, last = memoryInUse(), used {
		time.Sleep(50 * time.Millisecond)
	}
	each := float64(memoryInUse()-min(before, memoryInUse())) / connections
	t.Logf("%d connections use %.0f KiB each, including their clients", connections, each/1024)
	if each > perConnection {
		t.Errorf("a connection uses %.0f KiB, want at most %d", each/1024, perConnection>>10)
	}
	if each < frame.MaxToHost/2 {
		t.Errorf("a connection uses %.0f KiB: the frames have not arrived, so nothing was measured", each/1024)
	}
}

// enterAs performs the handshake of a key, with as little memory as possible.
func enterAs(t *testing.T, socket net.Conn, key identity.Key) *tls.Conn {
	t.Helper()
	var server identity.ID
	secured := secure.Client(socket, func(found identity.ID) error { server = found; return nil })
	reader := frame.NewReader(secured)
	_, payload, err := reader.Next(frame.MaxHello)
	if err != nil {
		t.Fatal(err)
	}
	challenge, err := frame.DecodeChallenge(payload)
	if err != nil {
		t.Fatal(err)
	}
	hello := frame.Hello{Role: frame.RoleParticipant, RunID: hostileRun}.Sign(nil, key, challenge.Nonce, server)
	if _, err := secured.Write(frame.Append(nil, frame.TypeHello, hello)); err != nil {
		t.Fatal(err)
	}
	if kind, payload, err := reader.Next(frame.MaxHello); err != nil || kind != frame.TypeWelcome {
		t.Fatalf("type %d (%q), %v", kind, payload, err)
	}
	return secured
}

// memoryInUse returns the bytes of live objects and stacks.
func memoryInUse() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc + m.StackInuse
}
