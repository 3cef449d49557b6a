package memory

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/host/core"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/follow"
	"github.com/psyche-go/psyche/record/wire"
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
	run [32]byte // hash that names it
	now func() uint64

	mu      sync.Mutex
	core    *core.Host
	nonce   uint64 // of the newest action of any client: they need not be dense
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
	log := follow.Resume(follow.Genesis{Raw: []byte(state.RunID)}, state, wire.Head{}, nil) // nobody reads it
	h := &Host{
		run: log.Run(), now: o.Now,
		clients: make(map[identity.ID]*Client), applied: make(chan struct{}, 1),
	}
	h.core = core.New(log, core.Now{}, core.Options{
		Times: core.Times{WithdrawGrace: -1}, Draws: draws{seeds}, Sign: wire.Signer(key, h.run),
		Connection: func(id identity.ID) (from core.Origin, live bool) { return from, h.clients[id] != nil },
	})
	return h, nil
}

// draws are without end, and committed to by nobody.
type draws struct{ seeds *rand.PCG }

// Opening implements core.Draws.
func (d draws) Opening([32]byte) (draw [32]byte, left int, ok bool) {
	for i := 0; i < len(draw); i += 8 {
		binary.LittleEndian.PutUint64(draw[i:], d.seeds.Uint64())
	}
	return draw, math.MaxInt, true
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
	h.publish()
	return c, nil
}

// State returns a copy of the present state.
func (h *Host) State() coordinator.State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.core.State().Clone()
}

// Tick does everything that is due, and returns how long the host may sleep then: at most a beat,
// since the clock may be set.
func (h *Host) Tick(beat time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.core.Tick(h.clock())
	_ = h.settle() // its draws have no end
	return h.core.Sleep(h.clock(), beat)
}

// clock returns the time of the run: nothing here waits for any other. The caller holds mu.
func (h *Host) clock() core.Now { return core.Now{Clock: h.now()} }

// Run ticks when something is due until ctx ends. It looks at least once in a beat whether
// the clock was set.
func (h *Host) Run(ctx context.Context, beat time.Duration) {
	for ctx.Err() == nil {
		select {
		case <-time.After(h.Tick(beat)):
		case <-h.applied:
		case <-ctx.Done():
		}
	}
}

// Apply applies an action that the host signs, such as SetPaused.
func (h *Host) Apply(a coordinator.Action) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.act(a)
}

// act applies an action of the host's own. The caller holds mu.
func (h *Host) act(a coordinator.Action) error {
	refused := h.core.Act(h.clock(), a)
	return cmp.Or(refused, h.acted())
}

// submit takes an action the way it would take over a network. The caller holds mu.
func (h *Host) submit(key identity.Key, a coordinator.Action) error {
	h.nonce++
	action, err := wire.OpenAction(wire.SignAction(key, h.run, h.nonce, a), h.run)
	if err != nil {
		return err
	}
	var refused error
	h.core.Submit(h.clock(), action, core.Origin{}, func(err error) { refused = err })
	err = h.acted() // which answers
	return cmp.Or(err, refused)
}

// acted shows what an action did, and lets Run look what is due after it. The caller holds mu.
func (h *Host) acted() error {
	select {
	case h.applied <- struct{}{}:
	default:
	}
	return h.settle()
}

// settle shows what the core did. The caller holds mu.
func (h *Host) settle() error {
	_, err := h.core.Settle(h.clock(), func(u core.Update) {
		if u.Changed {
			h.publish()
		}
	})
	return err
}

// publish shows every client the present state and the addresses of those that take part, instead of
// what it has not taken yet. The caller holds mu, so nobody else sends.
func (h *Host) publish() {
	participants := h.core.Participants()
	for _, c := range h.clients {
		state := h.core.State().Clone()
		update := backend.Update{State: &state, Run: h.run} // its own
		for _, id := range participants {
			if peer := h.clients[id]; peer != nil {
				update.Peers = append(update.Peers, backend.Peer{ID: id, Addrs: slices.Clone(peer.addrs), Name: h.core.Names()[id]})
			}
		}
		select {
		case <-c.updates:
		default:
		}
		c.updates <- update
	}
}

// Client implements the contract of package backend.
type Client struct {
	host    *Host
	key     identity.Key
	updates chan backend.Update

	addrs []string // host.mu guards them
}

// attached reports whether the participant was not detached. The caller holds host.mu.
func (c *Client) attached() bool { return c.host.clients[c.key.ID()] == c }

// Updates returns the channel of states; see package backend.
func (c *Client) Updates() <-chan backend.Update { return c.updates }

// Submit applies an action; see package backend.
func (c *Client) Submit(ctx context.Context, a coordinator.Action) error {
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	err := context.Cause(ctx)
	if err == nil && !c.attached() {
		err = backend.ErrClosed
	}
	if err == nil {
		err = c.host.submit(c.key, a)
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
	if !c.attached() {
		return fmt.Errorf("announce: %w", backend.ErrClosed)
	}
	c.addrs = slices.Clone(addrs)
	c.host.publish()
	return nil
}

// Err returns nil: a host in the same process is never lost.
func (c *Client) Err() error { return nil }

// Cut detaches the participant, which keeps its place in the run: it comes back within the time
// that a host waits for a client that lost its connection.
func (c *Client) Cut() {
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	c.detach()
}

// detach reports whether the participant was attached. The caller holds host.mu.
func (c *Client) detach() bool {
	if !c.attached() {
		return false
	}
	delete(c.host.clients, c.key.ID())
	close(c.updates)
	return true
}

// Close detaches the participant and withdraws it from the run.
func (c *Client) Close() error {
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	if c.detach() {
		// Refused when it is not part of the run, or the run is over.
		_ = c.host.act(coordinator.Withdraw{Client: coordinator.ClientID(c.key.ID())})
		c.host.publish()
	}
	return nil
}
