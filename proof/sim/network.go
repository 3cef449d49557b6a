package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/auditor"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/proof/sim/check"
	"github.com/psyche-go/psyche/proof/sim/scenario"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/wire"
	"lukechampine.com/blake3"
)

// requestTimeout is the timeout of a lost request or blob.
const requestTimeout = 2 * second

var (
	errUnreachable = errors.New("peer is not reachable")
	errNotHeld     = errors.New("no holder has the blob")
	errForged      = errors.New("missing signature")
)

// reach decides the outcome of one message between two clients.
func (w *world) reach(from, to int) (delay int64, lost bool) {
	delay = w.machines[from].latency + w.machines[to].latency
	if w.healed {
		return delay, false
	}
	if (w.cut[from] > 0) != (w.cut[to] > 0) || w.links.Chance(w.plan.DropPerMille) {
		return 0, true
	}
	return delay + w.extraDelay(), false
}

// peer returns the process of a client if it and p are connected.
func (p *process) peer(to int) *process {
	other := p.world.machines[to].process
	if other == nil || !p.friends[to] || !other.friends[p.machine.Index] {
		return nil
	}
	return other
}

// Addrs implements env.Peers.
func (p *process) Addrs() []string { return []string{"/sim/" + strconv.Itoa(p.machine.Index)} }

// SetMembers implements env.Peers.
func (p *process) SetMembers(peers []backend.Peer) {
	clear(p.friends)
	for _, peer := range peers {
		p.friends[p.world.cast.Find(peer.ID).Index] = true
	}
}

// Bytes implements env.Peers.
func (p *process) Bytes() (sent, received uint64) { return 0, 0 }

// Publish implements env.Gossip.
func (p *process) Publish(_ context.Context, message []byte) error {
	if p.machine.HasRole(scenario.Equivocation) && p.equivocate(message) {
		return nil
	}
	if p.machine.HasRole(scenario.HiddenResult) && p.hide(message) {
		return nil
	}
	for to := range p.world.machines {
		p.gossip(to, message)
	}
	return nil
}

// gossip sends a message to one client.
func (p *process) gossip(to int, message []byte) {
	other := p.peer(to)
	if other == nil || p.hides(other) {
		return
	}
	copies := 1
	if !p.world.healed && p.world.links.Chance(p.world.plan.DuplicatePerMille) {
		copies = 2
	}
	for range copies {
		delay, lost := p.world.reach(p.machine.Index, to)
		if !lost {
			p.world.recordSending(p, other, message, delay)
			if p.world.rules.deaf && p.machine.history() != other.machine.history() {
				continue
			}
			if p.world.net != nil {
				p.linkedGossip(other, message, delay)
				continue
			}
			other.put(item{at: p.world.now + delay, from: p.machine.Index, message: message})
		}
	}
}

// recordSending records an announcement on its way to a client. If it names a different start of the running
// round than the client has seen, it proves a fork, and an honest client must stop.
func (w *world) recordSending(from, to *process, message []byte, delay int64) {
	if w.other == nil || from.machine.history() == to.machine.history() || !to.machine.Honest() || !from.machine.Honest() {
		return
	}
	s, known := w.registry.Open(message)
	h := to.machine.history()
	if !known || h.base.RunState != coordinator.RoundTrain || h.base.Progress.Step != s.Announcement.Step {
		return
	}
	own, other := h.starts[s.Announcement.Step], s.Announcement.Start
	if own == (wire.Head{}) || other == (wire.Head{}) || !own.Contradicts(other) {
		return
	}
	step := own.Step
	knows := func() bool { return to.newest != nil && to.newest.Progress.Step >= step }
	known = knows()
	var look func()
	look = func() {
		switch idle := to.machine.starved - (w.now - forkNoticed); {
		case !to.alive || to.ended:
		case !known: // the host's records had not arrived yet
			known = knows()
			w.after(forkNoticed, look)
		case !w.healed && idle > 0: // its processor was idle in that time
			w.after(idle, look)
		default:
			h.checker.Violate(check.OneHistory, "%s received another start of step %d from %s, but continues", to.machine.Name(), step, from.machine.Name())
		}
	}
	w.after(delay+forkNoticed, look)
}

// forkNoticed is the time limit for a client to stop after it has received proof of a fork. It
// keeps running for two seconds to warn other members.
const forkNoticed = 5 * second

// Subscribe implements env.Gossip.
func (p *process) Subscribe(_ context.Context, handle func(from identity.ID, message []byte) error) error {
	p.listen = handle
	return nil
}

// roundTrip waits for the round trip to a client, and returns the client's process at its end.
func (p *process) roundTrip(ctx context.Context, id identity.ID) (*process, error) {
	w, to := p.world, p.world.cast.Find(id).Index
	there, lost := w.reach(p.machine.Index, to)
	back, alsoLost := w.reach(to, p.machine.Index)
	until := w.now + there + back
	if lost = lost || alsoLost; lost {
		until = w.now + requestTimeout
	}
	if err := p.wait(ctx, until); err != nil {
		return nil, err
	}
	if w.isStarved(to) {
		limit := w.now + requestTimeout
		if err := p.wait(ctx, min(limit, w.machines[to].starved)); err != nil {
			return nil, err
		}
		lost = w.isStarved(to)
	}
	other := p.peer(to)
	if lost || other == nil || p.hides(other) || !w.healed && (w.cut[p.machine.Index] > 0) != (w.cut[to] > 0) {
		return nil, errUnreachable
	}
	return other, nil
}

// isStarved reports whether a client's machine is stalled.
func (w *world) isStarved(i int) bool { return !w.healed && w.now < w.machines[i].starved }

// Request implements env.Requests.
func (p *process) Request(ctx context.Context, to identity.ID, protocol string, request []byte, maxResponse int) ([]byte, error) {
	if protocol == exchange.PushProtocol {
		return nil, p.push(ctx, p.world.cast.Find(to).Index, request)
	}
	response, err := p.answerOf(ctx, to, protocol, request)
	if err == nil && len(response) > maxResponse {
		err = fmt.Errorf("response of %d bytes, at most %d", len(response), maxResponse)
	}
	return response, err
}

// answerOf returns a client's answer to a request.
func (p *process) answerOf(ctx context.Context, to identity.ID, protocol string, request []byte) ([]byte, error) {
	if p.world.net != nil {
		return p.linkedRequest(ctx, to, protocol, request, 0)
	}
	other, err := p.roundTrip(ctx, to)
	if err != nil {
		return nil, err
	}
	handle := other.handlers[protocol]
	if handle == nil {
		return nil, errUnreachable
	}
	response, err := handle(ctx, p.machine.ID, request)
	if protocol == auditor.OpeningProtocol && (err != nil || other.refusesToOpen(p, request)) {
		if p.world.rules.accusesEarly && p.machine.Honest() {
			p.sendAside(coordinator.Accuse{Step: binary.LittleEndian.Uint32(request[32:]), Client: coordinator.ClientID(request), Fault: coordinator.FaultSilent})
		}
		return nil, errNotHeld
	}
	return response, err
}

// push sends a client a result, which takes the delay of one direction.
func (p *process) push(ctx context.Context, to int, request []byte) error {
	if p.machine.HasRole(scenario.Equivocation) || p.machine.HasRole(scenario.HiddenResult) { // the recipients are chosen when it is gossiped
		return errUnreachable
	}
	if p.world.net != nil {
		return p.linkedPush(ctx, to, request)
	}
	delay, lost := p.world.reach(p.machine.Index, to)
	if lost {
		_ = p.wait(ctx, p.world.now+requestTimeout)
		return errUnreachable
	}
	other := p.peer(to)
	if other == nil || p.hides(other) || p.world.rules.deaf && p.machine.history() != other.machine.history() {
		return errUnreachable
	}
	other.put(item{at: p.world.now + delay, from: p.machine.Index, push: request})
	return nil
}

// Handle implements env.Requests.
func (p *process) Handle(protocol string, _ int, handle func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)) {
	p.handlers[protocol] = handle
}

// Put implements env.Blobs.
func (p *process) Put(data []byte) ([32]byte, error) {
	hash := blake3.Sum256(data)
	p.blobs[hash] = data
	return hash, nil
}

// Keep implements env.Blobs.
func (p *process) Keep(data []byte) ([32]byte, error) { return p.Put(data) }

// Lend implements env.Blobs.
func (p *process) Lend(data []byte) ([32]byte, error) { return p.Put(data) }

// LendFrom implements env.Blobs. Simulated models are too small for a disk.
func (p *process) LendFrom(*io.SectionReader, func(error)) ([32]byte, error) {
	return [32]byte{}, errors.ErrUnsupported
}

// Drop implements env.Blobs.
func (p *process) Drop(hash [32]byte) { delete(p.blobs, hash) }

// Fetch implements env.Blobs.
func (p *process) Fetch(ctx context.Context, hash [32]byte, size uint64, holders []identity.ID) ([]byte, error) {
	return p.fetch(ctx, hash, size, size, holders)
}

// FetchUpTo implements env.Blobs.
func (p *process) FetchUpTo(ctx context.Context, hash [32]byte, maxSize uint64, holders []identity.ID) ([]byte, error) {
	return p.fetch(ctx, hash, 0, maxSize, holders)
}

func (p *process) fetch(ctx context.Context, hash [32]byte, minSize, maxSize uint64, holders []identity.ID) ([]byte, error) {
	if data, held := p.blobs[hash]; held {
		return data, nil
	}
	for _, id := range holders {
		other, err := p.holder(ctx, hash, id)
		if err != nil && ctx.Err() != nil {
			return nil, err
		}
		if other == nil {
			continue
		}
		if data, held := other.blobs[hash]; held && uint64(len(data)) >= minSize && uint64(len(data)) <= maxSize {
			p.blobs[hash] = data
			return data, nil
		}
	}
	return nil, errNotHeld
}

// holder returns the process of a client that was asked for a blob.
func (p *process) holder(ctx context.Context, hash [32]byte, id identity.ID) (*process, error) {
	if p.world.net == nil {
		return p.roundTrip(ctx, id)
	}
	other, err := p.linkedFetch(ctx, hash, id, 0)
	if err != nil {
		other = nil
	}
	return other, err
}

// Sign implements env.Announcements.
func (p *process) Sign(a wire.ResultAnnouncement) []byte {
	p.machine.history().checker.Announces(p.machine.Member, a)
	raw := p.world.registry.Sign(p.machine.Key, a, p.blobs[a.Blob])
	if p.world.results != nil {
		p.world.results[a.Blob] = true
	}
	p.world.Note('R', uint64(p.machine.Index), uint64(a.Step), func() string {
		return fmt.Sprintf("%s announces a result of step %d, batch %v", p.machine.Name(), a.Step, a.Batch)
	})
	return raw
}

// Open implements env.Announcements.
func (p *process) Open(raw []byte, _ [32]byte) (identity.ID, wire.ResultAnnouncement, error) {
	s, known := p.world.registry.Open(raw)
	if !known {
		return identity.ID{}, wire.ResultAnnouncement{}, errForged
	}
	return s.Author, s.Announcement, nil
}

// Prove implements env.Announcements. A proof uses real signatures, because it goes into the
// journal.
func (p *process) Prove(first, second []byte) (coordinator.Equivocation, bool) {
	var signed [2][]byte
	for i, raw := range [2][]byte{first, second} {
		s, _ := p.world.registry.Open(raw)
		signed[i] = wire.SignAnnouncement(p.world.cast.Find(s.Author).Key, s.Announcement)
	}
	return wire.NewEquivocation(signed[0], signed[1])
}
