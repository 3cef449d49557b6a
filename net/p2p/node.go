package p2p

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/connmgr"
	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/transport"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"
	tls "github.com/libp2p/go-libp2p/p2p/security/tls"
	libp2pquic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"
	"github.com/libp2p/go-libp2p/p2p/transport/tcpreuse"
	ma "github.com/multiformats/go-multiaddr"
	"golang.org/x/time/rate"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/quota"
)

// Errors of a node.
var (
	ErrClosed    = errors.New("node is closed")
	ErrNotMember = errors.New("not a member of the run")
	errOptions   = errors.New("invalid node options")
)

// Options are the settings of a node. Key is required.
type Options struct {
	Key identity.Key
	// Listen contains multiaddrs, for example /ip4/127.0.0.1/tcp/0 and /ip4/127.0.0.1/udp/0/quic-v1.
	// A node that listens on none can be reached only through relays, and does not dial private
	// networks.
	Listen []string
	Logger *slog.Logger

	// NoRelay disables relaying: the node neither serves as a relay nor uses one.
	NoRelay bool
	// Relays contains the addresses of circuit relays that are not members. Each address ends with
	// /p2p/ID.
	Relays []string
	// LocalDiscovery announces the node in the local network by multicast DNS and finds
	// members there.
	LocalDiscovery bool

	// OnPenalty is called for misbehaving members, in the goroutine that detected the fault. The
	// node also logs the fault. May be nil.
	OnPenalty func(Penalty)
	// MaxUploadRate bounds the upload of blobs, gossip, large requests, responses and relayed data, in
	// bytes per second; 0 means unlimited.
	MaxUploadRate int64
}

// Node is one participant on the peer-to-peer network.
type Node struct {
	life
	uploads
	relayUse
	id     identity.ID
	peerID peer.ID
	host   host.Host
	logger *slog.Logger
	bytes  bandwidth

	listen    []string
	onPenalty func(Penalty)
	records   records
	dials     *dials
	unproven  *unproven
	bulk      *bulk
	requests  *quota.Quota // memory of large requests

	mu       sync.Mutex
	closed   bool
	wg       sync.WaitGroup // every goroutine of the node; Add only under mu while open
	members  map[peer.ID]*member
	changed  chan struct{} // closed and replaced at every connection event
	services map[string]any
}

// life ends a node and its services.
type life struct {
	ctx    context.Context // ends with the node
	cancel context.CancelFunc
	stops  []func()    // stop the services of startServices
	unhook func() bool // stops watching the context passed to New
	once   sync.Once
	done   chan struct{} // closed when Close has finished
	err    error         // of closing; valid after done
}

// relayUse defines how a node uses relays.
type relayUse struct {
	useRelays bool
	relays    *relays
}

// uploads limits what a node sends.
type uploads struct {
	upload    *rate.Limiter // nil: no limit
	first     *rate.Limiter // limiter of data that precedes all other uploads
	sending   atomic.Int32  // blobs that are being written
	answering atomic.Int32  // current writes of all streams that are served
}

// New starts a node without members. It stops when ctx ends or Close is called.
func New(ctx context.Context, o Options) (*Node, error) {
	n, key, err := newNode(o)
	if err != nil {
		return nil, fmt.Errorf("start p2p node: %w", err)
	}
	if n.bulk, err = newBulk(n, key); err != nil {
		return nil, fmt.Errorf("start p2p node: %w", err)
	}
	n.ctx, n.cancel = context.WithCancel(context.WithoutCancel(ctx))
	if n.host, err = n.newHost(key, o.Listen); err != nil {
		n.cancel()
		return nil, fmt.Errorf("start p2p node: %w", err)
	}
	n.relays.mu.Lock()
	n.relays.host = n.host
	n.relays.mu.Unlock()
	n.host.Network().Notify(&network.NotifyBundle{
		ConnectedF:    func(_ network.Network, c network.Conn) { n.onConnected(c) },
		DisconnectedF: func(_ network.Network, c network.Conn) { n.onDisconnected(c) },
	})
	if err := n.startServices(o.LocalDiscovery); err != nil {
		n.cancel()
		n.bulk.close()
		return nil, fmt.Errorf("start p2p node: %w", errors.Join(err, n.host.Close()))
	}
	n.mu.Lock() // if ctx has already ended, Close runs at once
	defer n.mu.Unlock()
	if n.useRelays {
		n.wg.Go(n.keepRelays)
	}
	n.unhook = context.AfterFunc(ctx, func() { _ = n.Close() })
	return n, nil
}

// newNode checks the options. It returns a node without a host, and the key of that host.
func newNode(o Options) (*Node, crypto.PrivKey, error) {
	if len(o.Listen) == 0 && o.NoRelay {
		return nil, nil, fmt.Errorf("%w: no listen address, and no relays", errOptions)
	}
	if len(o.Key.Private()) == 0 {
		return nil, nil, fmt.Errorf("%w: no key", errOptions)
	}
	relays, err := parseRelays(o.Relays)
	if err != nil {
		return nil, nil, err
	}
	key, err := crypto.UnmarshalEd25519PrivateKey(o.Key.Private())
	if err != nil {
		return nil, nil, err
	}
	n := &Node{
		id:     o.Key.ID(),
		logger: o.Logger,

		listen:    o.Listen,
		relayUse:  relayUse{useRelays: !o.NoRelay, relays: relays},
		uploads:   uploads{upload: newUploadLimiter(o.MaxUploadRate), first: newFirstLimiter(o.MaxUploadRate)},
		requests:  quota.New(largeRequests, allLargeRequests),
		onPenalty: o.OnPenalty,
		records:   records{by: make(map[identity.ID]*conduct)},
		dials:     newDials(),
		unproven:  newUnproven(),

		life:     life{done: make(chan struct{})},
		members:  make(map[peer.ID]*member),
		changed:  make(chan struct{}),
		services: make(map[string]any),
	}
	n.logger = cmp.Or(n.logger, slog.New(slog.DiscardHandler))
	n.peerID, err = PeerID(n.id)
	return n, key, err
}

// startServices starts the services that the node offers to members.
func (n *Node) startServices(local bool) error {
	n.servePeers()
	if err := n.bulk.listen(n.host); err != nil {
		return err
	}
	n.stops = append(n.stops, n.bulk.close)
	if n.useRelays && len(n.listen) > 0 {
		service, err := n.serveRelay(n.host)
		if err != nil {
			return err
		}
		n.stops = append(n.stops, func() { _ = service.Close() })
	}
	if local {
		n.stops = append(n.stops, n.discoverLocally(n.host))
	}
	return nil
}

// newHost creates the libp2p host with two transports, QUIC and TCP, and without services for peers
// that are not members.
func (n *Node) newHost(key crypto.PrivKey, listen []string) (host.Host, error) {
	resources, err := newResourceManager()
	if err != nil {
		return nil, err
	}
	reach := libp2p.ChainOptions(libp2p.EnableRelay(), libp2p.EnableHolePunching())
	if !n.useRelays {
		reach = libp2p.DisableRelay()
	}
	h, err := libp2p.New(
		reach,
		libp2p.Identity(key),
		libp2p.Transport(libp2pquic.NewTransport),
		libp2p.Transport(func(u transport.Upgrader, r network.ResourceManager) (*tcp.TcpTransport, error) {
			n.bulk.ports = tcpreuse.NewConnMgr(tcpreuse.EnvReuseportVal, retryingUpgrader{u, n})
			return tcp.NewTCPTransport(u, r, n.bulk.ports)
		}),
		libp2p.Security(tls.ID, tls.New),
		libp2p.NoListenAddrs, // see below
		libp2p.ResourceManager(resources),
		libp2p.ConnectionGater(gater{n}),
		// Members are few and known. Trimming would close connections that are needed.
		libp2p.ConnectionManager(connmgr.NullConnMgr{}),
		libp2p.BandwidthReporter(&n.bytes),
		libp2p.SwarmOpts(swarm.WithDialRanker(rankDials)),
		// Failed dials to some members show nothing about UDP or IPv6 in general.
		libp2p.UDPBlackHoleSuccessCounter(nil),
		libp2p.IPv6BlackHoleSuccessCounter(nil),
		libp2p.UserAgent("psyche"),
		libp2p.AddrsFactory(n.withRelays),
		libp2p.DisableMetrics(),
		libp2p.Ping(false),
	)
	if err != nil {
		return nil, errors.Join(err, resources.Close())
	}
	// Listen on the addresses one by one. If all are passed together, libp2p succeeds if any of them
	// works. A port that another program uses would then only be noticed because peers cannot
	// connect.
	for _, text := range listen {
		if err := listenOn(h, text); err != nil {
			return nil, errors.Join(err, h.Close())
		}
	}
	return h, nil
}

// withRelays adds the node's addresses through its relays to the addresses that it announces to
// members.
func (n *Node) withRelays(addrs []ma.Multiaddr) []ma.Multiaddr {
	direct := slices.DeleteFunc(slices.Clone(addrs), isCircuit)
	return append(direct, n.relays.addrs()...)
}

func listenOn(h host.Host, text string) error {
	addr, err := ma.NewMultiaddr(text)
	if err == nil {
		err = h.Network().Listen(addr)
	}
	if err != nil {
		return fmt.Errorf("listen on %s: %w", text, err)
	}
	return nil
}

// Close disconnects all peers, waits for every handler and goroutine of the node to return, and
// frees the listening ports. Later calls return the result of the first.
func (n *Node) Close() error {
	n.once.Do(func() {
		n.mu.Lock()
		n.closed = true
		unhook := n.unhook
		n.mu.Unlock()
		unhook()
		n.cancel()
		for _, stop := range n.stops {
			stop()
		}
		if err := n.host.Close(); err != nil {
			n.err = fmt.Errorf("close p2p node: %w", err)
		}
		n.wg.Wait()
		close(n.done)
	})
	<-n.done
	return n.err
}

// ID returns the node's own identity.
func (n *Node) ID() identity.ID { return n.id }

// Addrs returns the multiaddrs at which the node can be dialled, with actual ports and interface
// addresses.
func (n *Node) Addrs() []string {
	addrs := n.host.Addrs()
	texts := make([]string, 0, len(addrs))
	for _, addr := range addrs {
		texts = append(texts, addr.String())
	}
	return texts
}

// Bytes returns the number of bytes that all streams have carried, not counting framing and
// encryption.
func (n *Node) Bytes() (sent, received uint64) {
	return n.bytes.sent.Load(), n.bytes.received.Load()
}

// Logger returns the node's logger.
func (n *Node) Logger() *slog.Logger { return n.logger }

// Service returns the node's single instance of a libp2p service. The first call for a name creates
// it with start, whose ctx ends with the node; later calls return the same instance. Packages on
// top of the node, such as gossip, use it for libp2p protocols that exist once per host.
func (n *Node) Service(name string, start func(ctx context.Context, h host.Host) (any, error)) (any, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, ErrClosed
	}
	if service, ok := n.services[name]; ok {
		return service, nil
	}
	service, err := start(n.ctx, n.host)
	if err != nil {
		return nil, fmt.Errorf("start p2p service %s: %w", name, err)
	}
	n.services[name] = service
	return service, nil
}

// Connected returns the connected members in ascending order of ID.
func (n *Node) Connected() []identity.ID {
	n.mu.Lock()
	members := slices.Collect(maps.Values(n.members))
	n.mu.Unlock()
	ids := make([]identity.ID, 0, len(members))
	for _, m := range members {
		if n.isConnected(m.peerID) {
			ids = append(ids, m.id)
		}
	}
	slices.SortFunc(ids, compareIDs)
	return ids
}

// run starts f in a goroutine that Close waits for. It reports false if the node is closed. f must
// return when the node's context ends.
func (n *Node) run(f func()) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return false
	}
	n.wg.Go(f)
	return true
}

// enter makes Close wait for the calling goroutine until it calls leave. It reports false if the
// node is closed.
func (n *Node) enter() (leave func(), ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, false
	}
	n.wg.Add(1)
	return n.wg.Done, true
}
