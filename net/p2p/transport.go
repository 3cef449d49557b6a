package p2p

import (
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/metrics"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	rcmgr "github.com/libp2p/go-libp2p/p2p/host/resource-manager"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	"github.com/libp2p/go-libp2p/x/rate"
	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"

	"github.com/psyche-go/psyche/net/admission"
)

const (
	// connsPerSubnet is the maximum number of connections from one IPv4 address or one IPv6 /56.
	// The library's default of 8 would refuse members that share an address.
	connsPerSubnet = 512
	// handshakesPerSecond limits the computation that unknown clients can cause. The library's
	// default is one connection in five seconds for each address.
	handshakesPerSecond = 200
	handshakesBurst     = 1024
	// unprovenConnsAtOnce is the maximum number of connections that have not proved a key yet: all such
	// connections over TCP (unproven), and some over QUIC, which has its own protection against
	// floods.
	unprovenConnsAtOnce = admission.MaxWaiting + 256
	// quicAfterTCP is how long a dial to a private address waits for TCP before trying QUIC.
	quicAfterTCP = 250 * time.Millisecond
)

// newResourceManager returns limits for memory, streams and connections that depend on the machine's
// size. Many members may share one address, because the gater decides who may connect.
func newResourceManager() (network.ResourceManager, error) {
	limits := rcmgr.DefaultLimits
	libp2p.SetDefaultServiceLimits(&limits)
	unproven := &limits.TransientBaseLimit
	unproven.ConnsInbound, unproven.Conns, unproven.FD = unprovenConnsAtOnce, 2*unprovenConnsAtOnce, unprovenConnsAtOnce
	return rcmgr.NewResourceManager(rcmgr.NewFixedLimiter(limits.AutoScale()),
		rcmgr.WithMetricsDisabled(),
		rcmgr.WithLimitPerSubnet(
			[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 32, ConnCount: connsPerSubnet}},
			[]rcmgr.ConnLimitPerSubnet{{PrefixLength: 56, ConnCount: connsPerSubnet}}),
		rcmgr.WithConnRateLimiters(&rate.Limiter{
			GlobalLimit: rate.Limit{RPS: handshakesPerSecond, Burst: handshakesBurst},
		}))
}

// rankDials dials TCP first on loopback and private networks, where it carries two to three times
// the bytes for the same CPU time. For public addresses it uses the library's rule: QUIC first.
func rankDials(addrs []ma.Multiaddr) []network.AddrDelay {
	var private, public, circuits []ma.Multiaddr
	haveTCP := false
	for _, addr := range addrs {
		if isCircuit(addr) {
			circuits = append(circuits, addr)
			continue
		}
		if !manet.IsPrivateAddr(addr) && !manet.IsIPLoopback(addr) {
			public = append(public, addr)
			continue
		}
		private = append(private, addr)
		haveTCP = haveTCP || isTCP(addr)
	}
	ranked := make([]network.AddrDelay, 0, len(addrs))
	for _, addr := range private {
		delay := time.Duration(0)
		if haveTCP && !isTCP(addr) {
			delay = quicAfterTCP
		}
		ranked = append(ranked, network.AddrDelay{Addr: addr, Delay: delay})
	}
	if len(public) > 0 {
		ranked = append(ranked, swarm.DefaultDialRanker(public)...)
	}
	delay := time.Duration(0)
	if len(ranked) > 0 {
		delay = relayAfter
	}
	for _, addr := range circuits {
		ranked = append(ranked, network.AddrDelay{Addr: addr, Delay: delay})
	}
	return ranked
}

// bandwidth counts the bytes of all streams exactly. libp2p's own counter lags by a second and needs
// a goroutine that never ends.
type bandwidth struct {
	sent, received atomic.Uint64
	peers          traffic
}

var _ metrics.Reporter = (*bandwidth)(nil)

func (b *bandwidth) LogSentMessage(n int64) { b.sent.Add(uint64(max(n, 0))) }
func (b *bandwidth) LogRecvMessage(n int64) { b.received.Add(uint64(max(n, 0))) }

func (b *bandwidth) GetBandwidthTotals() metrics.Stats {
	return metrics.Stats{TotalIn: int64(b.received.Load()), TotalOut: int64(b.sent.Load())}
}

func (b *bandwidth) LogSentMessageStream(n int64, _ protocol.ID, to peer.ID) {
	b.peers.of(to).sent.Add(uint64(max(n, 0)))
}
func (b *bandwidth) LogRecvMessageStream(n int64, _ protocol.ID, from peer.ID) {
	b.peers.of(from).received.Add(uint64(max(n, 0)))
}

// The other methods of the interface are about protocols and rates, which this package does not use.

func (b *bandwidth) GetBandwidthForPeer(peer.ID) metrics.Stats             { return metrics.Stats{} }
func (b *bandwidth) GetBandwidthForProtocol(protocol.ID) metrics.Stats     { return metrics.Stats{} }
func (b *bandwidth) GetBandwidthByPeer() map[peer.ID]metrics.Stats         { return nil }
func (b *bandwidth) GetBandwidthByProtocol() map[protocol.ID]metrics.Stats { return nil }
func (b *bandwidth) Reset()                                                {}
func (b *bandwidth) TrimIdle(time.Time)                                    {}
