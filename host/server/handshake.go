package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/psyche-go/psyche/net/frame"
	"github.com/psyche-go/psyche/record/follow"
)

const probeTimeout = 2 * time.Second // for an old connection to prove that it is alive

// errEvicted ends the connection of an unknown client that was evicted in favour of another
// connection.
var errEvicted = errors.New("unknown client evicted in favour of a client from an address with fewer connections")

// errCreated ends a connection that only started a run.
var errCreated = errors.New("the run has begun")

// errListed ends a connection that only listed the runs.
var errListed = errors.New("the runs are listed")

// handshake proves the server's key and reads the client's identity and request. If the client
// takes part in a run, this becomes the live connection of its key.
func (c *connection) handshake(ctx context.Context) error {
	if err := c.conn.Handshake(ctx, frame.HandshakeTimeout); err != nil {
		return err
	}
	hello, err := c.introduce(ctx)
	if err != nil {
		return err
	}
	c.role, c.sequence = hello.Role, hello.Sequence
	switch c.role {
	case frame.RoleCreator:
		return c.create(ctx, hello.RunID)
	case frame.RoleLister:
		if err := c.write(ctx, frame.TypeRuns, frame.AppendRuns(nil, c.server.summaries())); err != nil {
			return err
		}
		return errListed
	}
	if c.host = c.server.find(hello.RunID); c.host == nil {
		return c.server.notHosted(hello.RunID)
	}
	if hello.Run != ([32]byte{}) && hello.Run != c.host.run {
		return refuse(frame.RefusedWrongRun, "run %q on this server has the hash %x, want %x", hello.RunID, c.host.run, hello.Run)
	}
	if c.role == frame.RoleObserver {
		err = c.watch()
	} else {
		err = c.claim(ctx, hello.Addrs)
	}
	if err != nil {
		return err
	}
	welcome := frame.Welcome{Host: c.server.key.ID(), Requires: c.server.options.Requires, Genesis: c.host.store.log.Genesis().Raw}
	return c.write(ctx, frame.TypeWelcome, welcome.AppendTo(nil))
}

// introduce exchanges challenge and hello.
func (c *connection) introduce(ctx context.Context) (frame.Hello, error) {
	if _, err := io.ReadFull(c.server.options.Random, c.nonce[:]); err != nil {
		return frame.Hello{}, fmt.Errorf("draw a challenge: %w", err)
	}
	challenge := frame.Challenge{Version: frame.Version, Nonce: c.nonce}
	if err := c.write(ctx, frame.TypeChallenge, challenge.AppendTo(nil)); err != nil {
		return frame.Hello{}, err
	}
	payload, err := c.expect(ctx, frame.TypeHello, frame.MaxHello)
	if err != nil {
		return frame.Hello{}, err
	}
	hello, err := frame.OpenHello(payload, c.nonce, c.server.key.ID())
	if err != nil {
		return hello, refuse(frame.RefusedMalformed, "%v", err)
	}
	c.id = hello.ID
	c.logger = c.logger.With("client", c.id)
	return hello, nil
}

// expect reads the only frame type that is allowed now.
func (c *connection) expect(ctx context.Context, want frame.Type, limit int) ([]byte, error) {
	kind, payload, err := c.conn.Next(ctx, limit)
	if err != nil {
		return nil, err
	}
	if kind != want {
		return nil, refuse(frame.RefusedMalformed, "a frame of type %d, want type %d", kind, want)
	}
	return payload, nil
}

// create starts the run that the client sends. It ends the connection.
func (c *connection) create(ctx context.Context, runID string) error {
	if err := c.server.mayCreate(c.id, runID); err != nil {
		return err
	}
	d, err := newDraws(c.server.options.Random, createdDraws)
	if err != nil {
		return err
	}
	welcome := frame.Welcome{Host: c.server.key.ID(), Draws: d.chain.Commitment()}
	if err := c.write(ctx, frame.TypeWelcome, welcome.AppendTo(nil)); err != nil {
		return err
	}
	payload, err := c.expect(ctx, frame.TypeCreate, 1+follow.MaxGenesis)
	if err != nil {
		return err
	}
	create, err := follow.OpenGenesis(append([]byte{}, payload...))
	if err != nil {
		return refuse(frame.RefusedMalformed, "%v", err)
	}
	if create.Signer != c.id {
		return refuse(frame.RefusedMalformed, "received a run signed by %s on the connection of %s", create.Signer, c.id)
	}
	if err := c.server.create(create, runID, d); err != nil {
		return err
	}
	if err := c.write(ctx, frame.TypeAck, frame.Ack{}.AppendTo(nil)); err != nil {
		return err
	}
	return errCreated
}

// watch takes an observer slot.
func (c *connection) watch() error {
	if !c.server.observers.acquire(c.id, observersPerKey) {
		return refuse(frame.RefusedBusy, "the key %s has %d observer connections, which is its limit", c.id, observersPerKey)
	}
	c.watching = true
	return c.host.registry.watch(c, c.host.newest.Load().roleKeys[c.id])
}

// claim makes this the live connection of the key. An existing connection keeps the key if it answers a
// Ping. If it does not answer, its client has vanished, and this connection replaces it.
func (c *connection) claim(ctx context.Context, addrs []string) error {
	c.origin = c.host.origin(c.conn.RemoteAddr())
	for range 3 {
		unknown := !c.host.newest.Load().known[c.id]
		other, err := c.host.registry.claim(c, addrs, unknown)
		if other == nil {
			return err
		}
		if other.isAlive(ctx) {
			break
		}
		other.hangUp(refuse(frame.RefusedTimeout, "the client did not answer, and has connected again"))
		select {
		case <-other.ended:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return refuse(frame.RefusedDuplicateKey, "a client with the key %s is already connected; each client needs its own key", c.id)
}

// isAlive pings the client and reports whether it answers.
func (c *connection) isAlive(ctx context.Context) bool {
	c.probing.Lock()
	defer c.probing.Unlock()
	select {
	case <-c.heard:
	default:
	}
	signal(c.probe)
	timer := time.NewTimer(probeTimeout)
	defer timer.Stop()
	select {
	case <-c.heard:
		return true
	case <-c.ended:
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}
