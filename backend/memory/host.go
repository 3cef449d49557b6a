package memory

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/psyche-go/psyche/backend"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/wire"
)

// Options of a Host.
type Options struct {
	// Genesis returns the state a run starts with, given the key of its host;
	// config.Run.CoordinatorState is one.
	Genesis func(host coordinator.ClientID) (coordinator.State, error)
	// Now returns the Unix time in milliseconds. It is called with the host locked.
	Now func() uint64
	// Seed determines the host's key and all round seeds.
	Seed uint64
}

// Host holds a run. Its methods may be called from any goroutine.
type Host struct {
	key identity.Key
	run [32]byte // hash that names it
	now func() uint64

	mu      sync.Mutex
	state   coordinator.State
	seeds   *rand.PCG
	nonce   uint64 // of the newest action of anybody: they need not be dense
	clients map[identity.ID]*Client

	applied chan struct{} // has a value when an action was applied since Run looked
}

// NewHost begins a run.
func NewHost(o Options) (*Host, error) {
	seeds := rand.NewPCG(o.Seed, 0)
	var secret [identity.SeedSize]byte
	for i := range secret {
		secret[i] = byte(seeds.Uint64())
	}
	key := identity.FromSeed(secret)
	state, err := o.Genesis(coordinator.ClientID(key.ID()))
	if err != nil {
		return nil, fmt.Errorf("initial state: %w", err)
	}
	return &Host{
		key: key, run: wire.HostedRun([]byte(state.RunID)), now: o.Now,
		state: state, seeds: seeds, clients: make(map[identity.ID]*Client), applied: make(chan struct{}, 1),
	}, nil
}

// Attach connects a participant. One key has one live Client.
func (h *Host) Attach(key identity.Key) (*Client, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.clients[key.ID()] != nil {
		return nil, fmt.Errorf("attach %s: %w", key.ID(), backend.ErrDuplicateKey)
	}
	c := &Client{host: h, key: key, updates: make(chan backend.Update, 1)}
	h.clients[key.ID()] = c
	h.publishTo(c, h.peers())
	return c, nil
}

// State returns a copy of the present state.
func (h *Host) State() coordinator.State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state.Clone()
}

// Tick does everything that is due, and reports whether anything was.
func (h *Host) Tick() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	changed := h.tick()
	if changed {
		h.publish()
	}
	return changed
}

// Run ticks when something is due until ctx ends. It looks at least once in a beat whether
// the clock was set.
func (h *Host) Run(ctx context.Context, beat time.Duration) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-h.applied:
		case <-ctx.Done():
			return
		}
		timer.Reset(max(time.Millisecond, min(h.runDue(), beat)))
	}
}

// runDue does what is due, and returns how long nothing is unless somebody acts.
func (h *Host) runDue() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	const never = time.Duration(coordinator.MaxTime) * time.Millisecond
	now := h.now()
	at, ok := h.state.Due(now)
	if ok && at <= now && h.tick() {
		h.publish()
		now = h.now()
		at, ok = h.state.Due(now)
	}
	if !ok {
		return never
	}
	return time.Duration(min(at-now, coordinator.MaxTime)) * time.Millisecond
}

// Apply applies an action that the host signs, such as SetPaused.
func (h *Host) Apply(a coordinator.Action) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.apply(h.key, a)
}

// apply takes an action the way it would take over a network. The caller holds mu.
func (h *Host) apply(key identity.Key, a coordinator.Action) error {
	h.nonce++
	action, err := wire.OpenAction(wire.SignAction(key, h.run, h.nonce, a), h.run)
	if err != nil {
		return err
	}
	if err := h.state.Apply(coordinator.ClientID(action.From), action.Nonce, action.Action); err != nil {
		return err
	}
	h.tick()
	h.publish()
	select {
	case h.applied <- struct{}{}:
	default:
	}
	return nil
}

// tick makes at most as many transitions as there are states. The caller holds mu.
func (h *Host) tick() bool {
	changed := false
	for range int(coordinator.Paused) {
		if !h.state.Tick(h.now(), h.draw()) {
			break
		}
		changed = true
	}
	return changed
}

// draw returns what the next round may begin with. The caller holds mu.
func (h *Host) draw() (draw [32]byte) {
	for i := 0; i < len(draw); i += 8 {
		binary.LittleEndian.PutUint64(draw[i:], h.seeds.Uint64())
	}
	return draw
}

// publish shows every client the present state. The caller holds mu.
func (h *Host) publish() {
	peers := h.peers()
	for _, c := range h.clients {
		h.publishTo(c, peers)
	}
}

// publishTo replaces the update that the client has not taken yet. The caller holds mu, so
// nobody else sends.
func (h *Host) publishTo(c *Client, peers []backend.Peer) {
	select {
	case <-c.updates:
	default:
	}
	state := h.state.Clone()
	own := make([]backend.Peer, len(peers))
	for i, p := range peers {
		own[i] = backend.Peer{ID: p.ID, Addrs: slices.Clone(p.Addrs)}
	}
	c.updates <- backend.Update{State: &state, Peers: own, Run: h.run}
}

// peers returns the addresses of those that take part. The caller holds mu.
func (h *Host) peers() []backend.Peer {
	var peers []backend.Peer
	for _, id := range slices.SortedFunc(maps.Keys(h.clients), func(a, b identity.ID) int { return bytes.Compare(a[:], b[:]) }) {
		if h.state.TakesPart(coordinator.ClientID(id)) {
			peers = append(peers, backend.Peer{ID: id, Addrs: h.clients[id].addrs})
		}
	}
	return peers
}

// Client implements the contract of package backend.
type Client struct {
	host    *Host
	key     identity.Key
	updates chan backend.Update

	// host.mu guards what follows.
	addrs  []string
	closed bool
}

// Updates returns the channel of states; see package backend.
func (c *Client) Updates() <-chan backend.Update { return c.updates }

// Submit applies an action; see package backend.
func (c *Client) Submit(ctx context.Context, a coordinator.Action) error {
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	err := context.Cause(ctx)
	switch {
	case err != nil:
	case c.closed:
		err = backend.ErrClosed
	default:
		err = c.host.apply(c.key, a)
	}
	if err != nil {
		return fmt.Errorf("submit %T: %w", a, err)
	}
	return nil
}

// Announce sets the participant's peer-to-peer addresses; see package backend.
func (c *Client) Announce(_ context.Context, addrs []string) error {
	if err := backend.CheckAddrs(addrs); err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	if c.closed {
		return fmt.Errorf("announce: %w", backend.ErrClosed)
	}
	c.addrs = slices.Clone(addrs)
	c.host.publish()
	return nil
}

// Err returns nil: a host in the same process is never lost.
func (c *Client) Err() error { return nil }

// Cut detaches the participant, which keeps its place in the run: it comes back within the time
// that a host waits for who lost its connection.
func (c *Client) Cut() {
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	c.detach()
}

// detach reports whether the participant was attached. The caller holds host.mu.
func (c *Client) detach() bool {
	if c.closed {
		return false
	}
	c.closed = true
	delete(c.host.clients, c.key.ID())
	close(c.updates)
	return true
}

// Close detaches the participant and withdraws it from the run.
func (c *Client) Close() error {
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	if !c.detach() {
		return nil
	}
	id := coordinator.ClientID(c.key.ID())
	// Refused when it is not part of the run, or the run is over.
	_ = c.host.apply(c.host.key, coordinator.Withdraw{Client: id})
	c.host.publish()
	return nil
}
