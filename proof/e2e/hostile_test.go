package e2e

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/secure"
	"github.com/psyche-go/psyche/record/event"
)

const (
	garbagePause  = 20 * time.Millisecond // between two attacks on one port
	garbageLinger = 500 * time.Millisecond
)

// TestRunSurvivesGarbageOnEveryPort sends data other than the protocol to all listening ports
// during a whole run.
func TestRunSurvivesGarbageOnEveryPort(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, rules{clients: 2, minClients: 2, roundsPerEpoch: 3, steps: 6})
	n.startServer()
	clients := n.startClients(2)
	ports := []port{{"tcp", n.address}, {"tls", n.address}}
	for _, c := range clients {
		for _, addr := range waitFor[event.Started](c).Addrs {
			ports = append(ports, parsePort(t, addr))
		}
	}
	if len(ports) != 6 {
		t.Fatalf("ports %v, want the server's, plain and in TLS, and two of each client", ports)
	}

	ctx, cancel := context.WithCancel(t.Context())
	var attackers sync.WaitGroup
	attacks := make([]int, len(ports))
	for i, p := range ports {
		attackers.Go(func() { attacks[i] = p.attack(ctx, rand.New(rand.NewPCG(1, uint64(i)))) })
	}
	finish(t, clients...)
	cancel()
	attackers.Wait()

	noPanic(t, n.server.Name, n.server.text(t))
	checkRun(t, n, clients...)
	for _, c := range clients {
		checkStayed(t, c, 6)
	}
	for i, count := range attacks {
		if count < 20 {
			t.Errorf("%v was attacked %d times only", ports[i], count)
		}
	}
	t.Logf("attacks on %v: %v", ports, attacks)
}

// port is a listening port and its protocol: udp, tcp, or tls as clients use with the server.
type port struct{ network, address string }

func (p port) dial(ctx context.Context) (net.Conn, error) {
	network := p.network
	if network == "tls" {
		network = "tcp"
	}
	conn, err := new(net.Dialer).DialContext(ctx, network, p.address)
	if err == nil && p.network == "tls" {
		conn = secure.Client(conn, func(identity.ID) error { return nil })
	}
	return conn, err
}

// parsePort reads a multiaddr such as /ip4/127.0.0.1/udp/4001/quic-v1.
func parsePort(t *testing.T, multiaddr string) port {
	t.Helper()
	parts := strings.Split(multiaddr, "/")
	if len(parts) < 5 {
		t.Fatalf("address %q", multiaddr)
	}
	return port{parts[3], net.JoinHostPort(parts[2], parts[4])}
}

// attack sends pieces of garbage one after the other and returns their number.
func (p port) attack(ctx context.Context, random *rand.Rand) int {
	pause := time.NewTicker(garbagePause)
	defer pause.Stop()
	var lingering sync.WaitGroup
	defer lingering.Wait()
	for count := 0; ; {
		select {
		case <-ctx.Done():
			return count
		case <-pause.C:
		}
		conn, err := p.dial(ctx)
		if err != nil {
			continue // a finished client has closed its port
		}
		pieces := garbage(p.network, random)
		_ = conn.SetWriteDeadline(time.Now().Add(garbageLinger))
		if _, err := conn.Write(pieces[count%len(pieces)]); err == nil {
			count++
		}
		// Some close the connection at once, others keep the other side waiting.
		if count%2 == 0 {
			_ = conn.Close()
			continue
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		lingering.Go(func() {
			defer stop()
			_ = conn.SetReadDeadline(time.Now().Add(garbageLinger))
			for buffer := make([]byte, 4096); ; {
				if _, err := conn.Read(buffer); err != nil {
					break
				}
			}
			_ = conn.Close()
		})
	}
}

// garbage returns the data that may be sent to a port: noise, other protocols, frames that claim to
// be huge or are truncated, and the first bytes of the expected protocol.
func garbage(network string, random *rand.Rand) [][]byte {
	noise := make([]byte, 1+random.IntN(1400))
	for i := range noise {
		noise[i] = byte(random.Uint32())
	}
	if network == "udp" {
		initial := append([]byte{0xc3, 0, 0, 0, 1, 8}, noise...) // header of a QUIC version 1 Initial packet
		return [][]byte{noise, {0}, initial, append([]byte{0xc3}, noise...), make([]byte, 1200)}
	}
	frame := func(length uint32, kind byte, payload []byte) []byte {
		return append(append(binary.BigEndian.AppendUint32(nil, length), kind), payload...)
	}
	multistream := "\x13/multistream/1.0.0\n"
	return [][]byte{
		noise,
		[]byte("GET / HTTP/1.1\r\nHost: here\r\n\r\n"),
		append([]byte{0x16, 3, 1, 0xff, 0xff}, noise...), // TLS record, cut short
		frame(1<<32-1, 2, noise),
		frame(1<<20, 2, noise),
		frame(0, 0, nil),
		frame(uint32(len(noise)+1), 2, noise),
		frame(uint32(len(noise)+1), 9, noise),
		[]byte(multistream),
		append([]byte(multistream), noise...),
		append([]byte(multistream), 0xff, 0xff, 0xff, 0xff, 0x7f), // a line of 32 GiB
		make([]byte, 1<<20),
	}
}
