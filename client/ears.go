package client

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/client/exchange"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
	"github.com/psyche-go/psyche/wire"
)

// utterance is an announcement whose signature was verified.
type utterance struct {
	from         identity.ID // who gossiped it; zero when it was asked for
	author       identity.ID
	announcement wire.ResultAnnouncement
	raw          []byte
}

var (
	errTooLong  = errors.New("it is too long")
	errTooEarly = errors.New("the run was not seen yet")
	errHead     = errors.New("the host did not sign the head that it names")
)

// ears bring announcements to the loop, and the own ones to peers.
type ears struct {
	tasks         *env.Tasks
	network       env.Network
	announcements env.Announcements
	shelf         *exchange.Shelf
	heard         chan utterance
	misbehaved    func(peer identity.ID, m Misbehaviour, detail string)
	log           *slog.Logger
	run           atomic.Pointer[issuer] // nil until a state of the run was seen
	healed        time.Time              // when lost gossip was last looked after
}

// issuer is whose run it is.
type issuer struct {
	run  [32]byte    // hash of the run
	host identity.ID // that signs the heads of its log

	mu    sync.Mutex
	known map[uint32]wire.Head // heads that verified, by step: all members have the same
}

// maxKnownHeads is of how many steps heads are known to verify.
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

// heardRoom is how many verified announcements wait for the loop at most.
const heardRoom = 2 * coordinator.MaxClients

// listen verifies what gossip brings, before the network passes it on. It runs in goroutines of the
// network.
func (e *ears) listen(from identity.ID, message []byte) error {
	author, announcement, err := e.open(message)
	if errors.Is(err, errTooEarly) {
		return err
	}
	if err != nil {
		e.log.Debug("gossip refused", "from", from.Short(), "err", err)
		e.misbehaved(from, InvalidMessage, "announcement: "+err.Error())
		return err
	}
	select {
	case e.heard <- utterance{from, author, announcement, message}:
	default: // heal asks again for what is lost here
	}
	return nil
}

// open verifies an announcement.
func (e *ears) open(message []byte) (identity.ID, wire.ResultAnnouncement, error) {
	if len(message) > exchange.MaxAnnouncementSize {
		return identity.ID{}, wire.ResultAnnouncement{}, errTooLong
	}
	of := e.run.Load()
	if of == nil {
		return identity.ID{}, wire.ResultAnnouncement{}, errTooEarly
	}
	author, a, err := e.announcements.Open(message, of.run)
	if err == nil && a.Start != (wire.Head{}) && !of.signed(a.Start) {
		err = errHead
	}
	return author, a, err
}

// publish gossips an announcement.
func (e *ears) publish(raw []byte) {
	e.tasks.Spawn(func(ctx context.Context) func() {
		ctx, cancel := e.tasks.WithTimeout(ctx, requestTimeout)
		defer cancel()
		err := e.network.Publish(ctx, raw)
		return func() {
			if err != nil {
				e.log.Debug("publish announcement", "err", err)
			}
		}
	})
}

// ask asks a peer for the announcements it has of a round, and hears them. Answered runs in the
// loop after that, unless there was no answer.
func (e *ears) ask(peer identity.ID, step uint32, hear func(utterance), answered func()) {
	e.tasks.Spawn(func(ctx context.Context) func() {
		ctx, cancel := e.tasks.WithTimeout(ctx, requestTimeout)
		defer cancel()
		heard, err := e.of(ctx, peer, step)
		return func() {
			if err != nil {
				e.log.Debug("ask for results", "peer", peer.Short(), "step", step, "err", err)
			}
			for _, u := range heard {
				hear(u)
			}
			if err == nil {
				answered()
			}
		}
	})
}

// of gets the verified announcements that a peer has of a round and that are new here.
func (e *ears) of(ctx context.Context, peer identity.ID, step uint32) ([]utterance, error) {
	raws, err := exchange.AskRound(ctx, e.network, peer, step)
	if err != nil {
		return nil, err
	}
	raws = e.shelf.Unknown(step, raws) // a signature costs more to verify than everything else here
	heard := make([]utterance, 0, len(raws))
	for _, raw := range raws {
		author, a, err := e.open(raw)
		if err != nil {
			return heard, err
		}
		if a.Step == step {
			heard = append(heard, utterance{author: author, announcement: a, raw: raw})
		}
	}
	return heard, nil
}
