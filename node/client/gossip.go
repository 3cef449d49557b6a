package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/base/quota"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/env"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/record/wire"
	"lukechampine.com/blake3"
)

// announcement is an announcement of a result with a verified signature. If it has no author, it is
// instead a head of the run's log. A member sends such a head when it knows that the host sent a
// different head to other members.
type announcement struct {
	from   identity.ID // the member that gossiped it; zero if it was requested
	author identity.ID
	result wire.ResultAnnouncement
	raw    []byte
	// payload is the result itself, if its trainer pushed it. It has the announced hash and size.
	payload []byte
}

var (
	errTooLong    = errors.New("message is too long")
	errTooEarly   = fmt.Errorf("%w: this client has no state of the run yet", env.ErrUnasked)
	errTooLate    = fmt.Errorf("%w: the round ended long ago", env.ErrUnasked)
	errUnsigned   = fmt.Errorf("%w: the message has no head of a round with the signature of this run's host", env.ErrUnasked)
	errHead       = errors.New("the host did not sign the head in the announcement")
	errOtherRound = fmt.Errorf("%w: the round ended long ago, or begins later than the next round", env.ErrUnasked)
	errNotIts     = errors.New("not a result of the sending member, or not the announced result")
	errPushes     = errors.New("too many results of one member in one round")
)

// gossipReader passes peers' announcements to the loop, and publishes this client's announcements.
type gossipReader struct {
	tasks         *env.Tasks
	network       env.Network
	announcements env.Announcements
	cache         *exchange.Cache
	received      chan announcement
	misbehaved    func(peer identity.ID, detail string)
	log           *slog.Logger
	run           atomic.Pointer[issuer] // nil until the client has seen a state of the run
	repaired      time.Time              // time of the last gossip repair
	step          atomic.Uint32          // of the run
	pusher        pusher

	waiting  *quota.Quota // bytes of pushed results that wait for the loop
	pushing  sync.Mutex
	pushes   map[identity.ID]int // number of pushes of each member in step pushesIn
	pushesIn uint32              // step
}

// issuer is the host of the run.
type issuer struct {
	run  [32]byte    // hash of the run
	host identity.ID // key that signs the heads of the run's log

	mu    sync.Mutex
	known map[uint32]wire.Head // verified heads by step; all members have the same
}

// maxKnownHeads is the number of steps for which verified heads are cached.
const maxKnownHeads = 16

// signed reports whether the host signed a head.
func (i *issuer) signed(h wire.Head) bool {
	i.mu.Lock()
	known := i.known[h.Step] == h
	i.mu.Unlock()
	if known {
		return true
	}
	if !h.Verify(i.host, i.run) {
		return false
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if len(i.known) >= maxKnownHeads {
		clear(i.known)
	}
	i.known[h.Step] = h
	return true
}

// Limits of the loop's queue: the number of verified announcements, and the bytes of results that were
// pushed with them, from one member and in total. A result that does not fit is dropped, and fetched
// instead.
const (
	receivedRoom     = 2 * coordinator.MaxClients
	maxPushedEach    = 1 << 20
	maxPushedFromAll = 32 << 20
)

// listen verifies a gossip message before the network forwards it. It runs in goroutines of the
// network.
func (g *gossipReader) listen(from identity.ID, message []byte) error {
	if len(message) == wire.HeadSize {
		return g.listenToHead(from, message)
	}
	author, a, err := g.open(message)
	if errors.Is(err, env.ErrUnasked) {
		return err
	}
	if err != nil {
		g.log.Debug("gossip refused", "from", from.Short(), "err", err)
		g.misbehaved(from, "announcement: "+err.Error())
		return err
	}
	// Gossip may deliver a message again some seconds later, when many rounds are over.
	if step := g.step.Load(); a.Step < step && step-a.Step > coordinator.StoredRounds {
		return errTooLate
	}
	g.pass(announcement{from: from, author: author, result: a, raw: message}) // repairGossip requests again what is lost here
	return nil
}

// listenToHead verifies a head. A head does not name its run, so a head without this host's signature
// may be from an earlier run of the same name. Anyone may have kept it, and its sender is not
// penalised.
func (g *gossipReader) listenToHead(from identity.ID, message []byte) error {
	of := g.run.Load()
	if of == nil {
		return errTooEarly
	}
	head, err := wire.DecodeHead(message)
	if err != nil {
		g.misbehaved(from, "head of the log: "+err.Error())
		return err
	}
	if head.Step == 0 || !of.signed(head) {
		return errUnsigned
	}
	g.pass(announcement{from: from, result: wire.ResultAnnouncement{Step: head.Step, Start: head}})
	return nil
}

// open verifies an announcement. An announcement for another run of the same name is refused without a
// penalty, because any member may have kept it and sent it again.
func (g *gossipReader) open(message []byte) (identity.ID, wire.ResultAnnouncement, error) {
	if len(message) > exchange.MaxAnnouncementSize {
		return identity.ID{}, wire.ResultAnnouncement{}, errTooLong
	}
	of := g.run.Load()
	if of == nil {
		return identity.ID{}, wire.ResultAnnouncement{}, errTooEarly
	}
	author, a, err := g.announcements.Open(message, of.run)
	if errors.Is(err, wire.ErrRun) {
		err = fmt.Errorf("%w: %w", env.ErrUnasked, err)
	}
	if err == nil && a.Start != (wire.Head{}) && !of.signed(a.Start) {
		err = errHead
	}
	return author, a, err
}

// publish gossips an announcement.
func (g *gossipReader) publish(raw []byte) {
	g.tasks.Spawn(func(ctx context.Context) func() {
		ctx, cancel := g.tasks.WithTimeout(ctx, requestTimeout)
		defer cancel()
		err := g.network.Publish(ctx, raw)
		return func() {
			if err != nil {
				g.log.Debug("publish announcement", "err", err)
			}
		}
	})
}

// receiveWaiting calls receive for the announcements that wait for the loop. Processing them together is
// cheaper than one at a time, because the work that follows an event is done only once.
func (g *gossipReader) receiveWaiting(receive func(announcement)) {
	for range min(len(g.received), maxReceivedAtOnce) {
		g.take(<-g.received, receive)
	}
}

// take calls receive for an announcement that waited for the loop.
func (g *gossipReader) take(a announcement, receive func(announcement)) {
	receive(a)
	g.waiting.Free(a.author, len(a.payload))
}

// pass passes an announcement to the loop. It drops the announcement if too many wait, and only its
// payload if too many bytes wait.
func (g *gossipReader) pass(a announcement) {
	if !g.waiting.Take(a.author, len(a.payload)) {
		a.payload = nil
	}
	select {
	case g.received <- a:
	default:
		g.waiting.Free(a.author, len(a.payload))
	}
}

// maxPushes is the maximum number of results that a member may push in a round. An honest member
// pushes one result, and a second result only after a restart.
const maxPushes = 4

// pushed handles a result that a member pushes together with the announcement. It runs in goroutines
// of the network.
func (g *gossipReader) pushed(from identity.ID, raw, payload []byte) error {
	if !g.mayPush(from) {
		return errPushes
	}
	author, a, err := g.open(raw)
	if errors.Is(err, env.ErrUnasked) {
		return err
	}
	if err == nil && (author != from || len(payload) != int(a.Size) || blake3.Sum256(payload) != a.Blob) {
		err = errNotIts
	}
	if err != nil {
		g.misbehaved(from, "pushed result: "+err.Error())
		return err
	}
	if step := g.step.Load(); a.Step > step+1 || a.Step < step && step-a.Step > coordinator.StoredRounds {
		return errOtherRound
	}
	g.pass(announcement{from: from, author: author, result: a, raw: raw, payload: payload}) // the announcement is also gossiped
	return nil
}

// mayPush counts a push of a member, before anything in it is verified.
func (g *gossipReader) mayPush(from identity.ID) bool {
	g.pushing.Lock()
	defer g.pushing.Unlock()
	if step := g.step.Load(); g.pushes == nil || step != g.pushesIn {
		g.pushes, g.pushesIn = make(map[identity.ID]int), step
	}
	g.pushes[from]++
	return g.pushes[from] <= maxPushes
}

// ask requests the announcements of a round from a peer. If the peer answers, the client's loop then
// calls receive for each announcement, and after that answered.
func (g *gossipReader) ask(peer identity.ID, step uint32, receive func(announcement), answered func()) {
	g.tasks.Spawn(func(ctx context.Context) func() {
		ctx, cancel := g.tasks.WithTimeout(ctx, requestTimeout)
		defer cancel()
		received, err := g.of(ctx, peer, step)
		return func() {
			if err != nil {
				g.log.Debug("ask for results", "peer", peer.Short(), "step", step, "err", err)
			}
			for _, u := range received {
				receive(u)
			}
			if err == nil {
				answered()
			}
		}
	})
}

// of requests a peer's announcements of a round. It verifies and returns the announcements that this
// client does not know.
func (g *gossipReader) of(ctx context.Context, peer identity.ID, step uint32) ([]announcement, error) {
	raws, err := exchange.AskRound(ctx, g.network, peer, step)
	if err != nil {
		return nil, err
	}
	raws = g.cache.Unknown(step, raws) // verifying a signature is the most expensive part
	received := make([]announcement, 0, len(raws))
	for _, raw := range raws {
		author, a, err := g.open(raw)
		if err != nil {
			return received, err
		}
		if a.Step == step {
			received = append(received, announcement{author: author, result: a, raw: raw})
		}
	}
	return received, nil
}
