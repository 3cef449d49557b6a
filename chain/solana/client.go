package solana

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/wire"
)

// Client implements the contract of package backend over a chain.
type Client struct {
	*sender
	announcement
	admission
	options Options
	program transaction.Program
	run     transaction.PublicKey

	ctx     context.Context
	cancel  context.CancelCauseFunc
	running sync.WaitGroup

	updates chan backend.Update
	seen    chan observation // sightings of the endpoints, for watch
	wake    chan struct{}    // wakes watch
	call    chan struct{}    // requests a fetch of the peers
	turn    chan struct{}    // full while an action is in flight

	mu      sync.Mutex
	view    view // its state is nil before the first sighting
	changed chan struct{}
	clock   *clock
	peers   map[identity.ID][]string
	nonce   uint64
	own     []ownAction // recently accepted actions of this client
	closed  bool
}

// announcement is the client's announcement of its addresses on the chain. The lock of the Client guards it.
type announcement struct {
	post      chan struct{} // requests an announcement
	addrs     []string      // to announce
	announced []string      // addresses on the chain
	repaired  time.Time     // time of the last repair
}

// admission is the state of the client's search for a grant that admits it.
type admission struct {
	searches   atomic.Uint32
	admitAfter time.Time     // earliest time of the next Admit
	admitPause time.Duration // since the last Admit that the chain refused; 0 means that none was
}

// ownAction is an accepted action of this client that the known state may lack.
type ownAction struct {
	nonce  uint64
	slot   uint64 // slot in which it landed
	action coordinator.Action
}

// maxOwn limits the stored own actions.
const maxOwn = 8

// Dial reads the run from the chain and follows it. ctx limits the life of the Client, not only
// Dial. Close ends the Client earlier.
func Dial(ctx context.Context, o Options) (*Client, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	pool, err := rpc.NewPool(rpc.Options{Endpoints: o.Endpoints, Transport: o.Transport})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	c := &Client{
		sender:  newSender(pool, o.Pace, o.Logger.With("run", o.Run), o.Key, o.MaxPrice),
		options: o, program: transaction.Program(o.Program), run: o.Run,
		ctx: ctx, cancel: cancel,
		updates: make(chan backend.Update, 1), seen: make(chan observation, 64),
		wake: make(chan struct{}, 1), call: make(chan struct{}, 1), turn: make(chan struct{}, 1),
		changed: make(chan struct{}), clock: newClock(len(o.Endpoints)), peers: make(map[identity.ID][]string),
		nonce:        uint64(max(0, time.Now().UnixNano())),
		announcement: announcement{post: make(chan struct{}, 1), addrs: slices.Clone(o.Addrs)},
	}
	c.searches.Store(rand.Uint32N(1 << 16)) // a client that serve starts again must not always ask the same node
	first := make(chan error, 1)
	c.running.Go(func() { c.watch(first) })
	for i := range pool.Endpoints() {
		c.running.Go(func() { c.listen(i) })
	}
	if err := c.awaitFirst(first); err != nil {
		_ = c.Close()
		return nil, err
	}
	c.running.Go(c.followPeers)
	c.running.Go(c.announce)
	if !o.Observe {
		c.running.Go(c.tick)
	}
	if len(o.Addrs) > 0 {
		poke(c.post)
	}
	return c, nil
}

// awaitFirst waits until watch has found a state of the run, or has found that there is no such run.
func (c *Client) awaitFirst(first <-chan error) error {
	timer := time.NewTimer(c.options.MaxElapsed)
	defer timer.Stop()
	select {
	case err := <-first:
		return err
	case <-c.ctx.Done():
		return fmt.Errorf("run %s: %w", c.run, context.Cause(c.ctx))
	case <-timer.C:
		var failed []error
		for _, e := range c.pool.Endpoints() {
			if err := e.LastError(); err != nil {
				failed = append(failed, err)
			}
		}
		return fmt.Errorf("run %s: %w: %d endpoints have not shown the same state within %s; check their addresses: %w",
			c.run, ErrUnreachable, len(c.pool.Endpoints()), c.options.MaxElapsed, errors.Join(failed...))
	}
}

// poke wakes a goroutine that waits on the channel of capacity one.
func poke(notify chan struct{}) {
	select {
	case notify <- struct{}{}:
	default:
	}
}

// adopt makes a state the current one and publishes it.
func (c *Client) adopt(s sighting, armed, slot uint64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	same := c.view.state != nil && c.view.claim == s.claim
	c.view.slot = slot
	if same && c.view.armed == armed {
		return
	}
	before := c.view.state
	c.view = view{
		state: &s.account.State, claim: s.claim, armed: armed, slot: slot, since: now, chain: c.clock.now(now),
	}
	close(c.changed)
	c.changed = make(chan struct{})
	if same {
		return
	}
	c.nonce = max(c.nonce, lastNonce(c.view.state, coordinator.ClientID(c.key)))
	if before == nil || !slices.Equal(participants(before), participants(c.view.state)) {
		poke(c.call)
	}
	c.publish()
}

// participants returns the keys whose addresses belong in updates, in the order of the state.
func participants(s *coordinator.State) []transaction.PublicKey {
	var ids []transaction.PublicKey
	for _, clients := range [][]coordinator.Client{s.Epoch.Clients, s.Pending} {
		for i := range clients {
			if clients[i].State == coordinator.Healthy {
				ids = append(ids, transaction.PublicKey(clients[i].ID))
			}
		}
	}
	return ids
}

// publish replaces the update that the reader has not taken yet. The caller holds mu.
func (c *Client) publish() {
	if c.view.state == nil || c.closed {
		return
	}
	state := c.view.state.Clone()
	taking := make(map[identity.ID]bool)
	for _, id := range participants(&state) {
		taking[identity.ID(id)] = true
	}
	var peers []backend.Peer
	for _, id := range slices.SortedFunc(maps.Keys(c.peers), func(a, b identity.ID) int { return slices.Compare(a[:], b[:]) }) {
		if taking[id] {
			peers = append(peers, backend.Peer{ID: id, Addrs: slices.Clone(c.peers[id])})
		}
	}
	select {
	case <-c.updates:
	default:
	}
	c.updates <- backend.Update{State: &state, Peers: peers, Run: wire.ChainRun(c.program, c.run)}
}

// lastNonce returns the newest nonce of a key in the state.
func lastNonce(s *coordinator.State, id coordinator.ClientID) (last uint64) {
	if id == s.Authority.Main {
		last = max(last, s.Authority.MainNonce)
	}
	if id == s.Authority.Join {
		last = max(last, s.Authority.JoinNonce)
	}
	if own, ok := s.Authority.Authorization(id); ok {
		last = max(last, own.Nonce)
	}
	for _, clients := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited, s.Pending, s.Departed} {
		for i := range clients {
			if clients[i].ID == id {
				last = max(last, clients[i].Nonce)
			}
		}
	}
	return last
}

// now returns the current view, and a channel that is closed when the view changes.
func (c *Client) now() (view, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.view, c.changed
}

// Updates returns the channel of states; see package backend.
func (c *Client) Updates() <-chan backend.Update { return c.updates }

// Err returns nil: a client follows the chain until it is closed, and logs unreachable endpoints.
func (c *Client) Err() error { return nil }

// Costs returns the client's costs since Dial.
func (c *Client) Costs() Costs {
	c.accounting.Lock()
	defer c.accounting.Unlock()
	return c.costs
}

// Run returns the address of the run's account.
func (c *Client) Run() transaction.PublicKey { return c.run }

// onChange returns a channel that is closed when the view changes.
func (c *Client) onChange() <-chan struct{} {
	_, changed := c.now()
	return changed
}

// Close ends the client and waits for its goroutines.
func (c *Client) Close() error {
	c.mu.Lock()
	closed := c.closed
	c.closed = true
	c.mu.Unlock()
	c.cancel(backend.ErrClosed)
	c.running.Wait()
	if !closed {
		close(c.updates)
		c.pool.Close()
	}
	return nil
}
