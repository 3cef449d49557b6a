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

// Options configure a Host.
type Options struct {
	// Genesis returns the starting state of a run for the key of its host, as
	// config.Run.CoordinatorState does.
	Genesis func(host coordinator.ClientID) (coordinator.State, error)
	// Now returns the Unix time in milliseconds. The Host calls it while it holds its lock.
	Now func() uint64
	// Seed determines the host's key and all round seeds.
	Seed uint64
}

// Host hosts one run. Its methods are safe for concurrent use.
type Host struct {
	run [32]byte // hash of the run
	now func() uint64

	mu      sync.Mutex
	core    *core.Host
	nonce   uint64 // newest nonce of all clients; nonces may have gaps
	clients map[identity.ID]*Client

	applied chan struct{} // has a value if an action was applied since Run last checked
}

// NewHost starts a run.
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
	log := follow.Resume(follow.Genesis{Raw: []byte(state.RunID)}, state, wire.Head{}, nil) // without a real genesis, because no test reads it
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

// draws is an endless source of draws without a commitment.
type draws struct{ seeds *rand.PCG }

// Opening implements core.Draws.
func (d draws) Opening([32]byte) (draw [32]byte, left int, ok bool) {
	for i := 0; i < len(draw); i += 8 {
		binary.LittleEndian.PutUint64(draw[i:], d.seeds.Uint64())
	}
	return draw, math.MaxInt, true
}

// Attach connects a participant. A key can have one live Client.
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

// State returns a copy of the current state.
func (h *Host) State() coordinator.State {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.core.State().Clone()
}

// tick does everything that is due. It returns how long the host may sleep afterwards, at most beat,
// because the clock may be changed meanwhile.
func (h *Host) tick(beat time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.core.Tick(h.clock())
	_ = h.advance() // cannot fail: its draws never end
	return h.core.Sleep(h.clock(), beat)
}

// clock returns the time of the run. The caller holds mu.
func (h *Host) clock() core.Now { return core.Now{Clock: h.now()} }

// Run calls tick whenever something is due, until ctx ends. It checks at least once per beat
// whether the clock was set.
func (h *Host) Run(ctx context.Context, beat time.Duration) {
	for ctx.Err() == nil {
		select {
		case <-time.After(h.tick(beat)):
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

// act applies an action of the host itself. The caller holds mu.
func (h *Host) act(a coordinator.Action) error {
	refused := h.core.Act(h.clock(), a)
	return cmp.Or(refused, h.acted())
}

// submit handles an action as if it had arrived over a network. The caller holds mu.
func (h *Host) submit(key identity.Key, a coordinator.Action) error {
	h.nonce = max(h.nonce+1, h.now()) // a later host of the same run accepts later actions
	action, err := wire.OpenAction(wire.SignAction(key, h.run, h.nonce, a), h.run)
	if err != nil {
		return err
	}
	var refused error
	h.core.Submit(h.clock(), action, core.Origin{}, func(err error) { refused = err })
	err = h.acted() // calls the answer function
	return cmp.Or(err, refused)
}

// acted publishes the effect of an action and wakes Run. The caller holds mu.
func (h *Host) acted() error {
	select {
	case h.applied <- struct{}{}:
	default:
	}
	return h.advance()
}

// advance publishes the core's newest state. The caller holds mu.
func (h *Host) advance() error {
	_, err := h.core.AdvanceUnsaved(h.clock(), func(u core.Update) {
		if u.Changed {
			h.publish()
		}
	})
	return err
}

// publish gives every client the current state and the addresses of the participants. It replaces
// an update that the client has not read yet. The caller holds mu, so there is no other sender.
func (h *Host) publish() {
	participants := h.core.Participants()
	for _, c := range h.clients {
		state := h.core.State().Clone()
		update := backend.Update{State: &state, Run: h.run} // each client owns its copy
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

	addrs []string // guarded by host.mu
}

// attached reports whether the participant is attached. The caller holds host.mu.
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
		return fmt.Errorf("submit %s: %w", follow.ActionName(a), err)
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

// Err returns nil: a host in the same process never disconnects.
func (c *Client) Err() error { return nil }

// Cut detaches the participant without withdrawing it, like a client that loses its connection and
// returns within the grace period.
func (c *Client) Cut() {
	c.host.mu.Lock()
	defer c.host.mu.Unlock()
	c.detach()
}

// detach detaches the participant and reports whether it was attached. The caller holds host.mu.
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
		// The host refuses this if the client is not in the run, or the run is finished.
		_ = c.host.act(coordinator.Withdraw{Client: coordinator.ClientID(c.key.ID())})
		c.host.publish()
	}
	return nil
}
