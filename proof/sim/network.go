package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/node/auditor"
	"github.com/psyche-go/psyche/node/exchange"
	"github.com/psyche-go/psyche/record/backend"
	"github.com/psyche-go/psyche/record/wire"
	"lukechampine.com/blake3"
)

// requestTimeout is how long a lost request or blob is waited for.
const requestTimeout = 2 * second

var (
	errUnreachable = errors.New("peer is not reachable")
	errNotHeld     = errors.New("no holder has the blob")
	errForged      = errors.New("nobody signed this")
)

// reach decides what becomes of one message between two clients.
func (w *world) reach(from, to int) (delay int64, lost bool) {
	delay = w.machines[from].latency + w.machines[to].latency
	if w.healed {
		return delay, false
	}
	if (w.cut[from] > 0) != (w.cut[to] > 0) || w.links.chance(w.plan.dropPerMille) {
		return 0, true
	}
	return delay + w.extraDelay(), false
}

// peer returns the process of a client when it and p talk to each other.
func (p *process) peer(to int) *process {
	other := p.world.machines[to].process
	if other == nil || !p.friends[to] || !other.friends[p.machine.index] {
		return nil
	}
	return other
}

// Addrs implements env.Peers.
func (p *process) Addrs() []string { return []string{"/sim/" + strconv.Itoa(p.machine.index)} }

// SetMembers implements env.Peers.
func (p *process) SetMembers(peers []backend.Peer) {
	clear(p.friends)
	for _, peer := range peers {
		p.friends[p.world.index[peer.ID]] = true
	}
}

// Bytes implements env.Peers.
func (p *process) Bytes() (sent, received uint64) { return 0, 0 }

// Publish implements env.Gossip.
func (p *process) Publish(_ context.Context, message []byte) error {
	if p.machine.lies(Equivocation) && p.equivocate(message) {
		return nil
	}
	if p.machine.lies(HiddenResult) && p.hide(message) {
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
	if !p.world.healed && p.world.links.chance(p.world.plan.duplicatePerMille) {
		copies = 2
	}
	for range copies {
		delay, lost := p.world.reach(p.machine.index, to)
		if !lost {
			p.machine.history().checker.told(p, other, message, delay)
			if p.world.rules.deaf && p.machine.history() != other.machine.history() {
				continue
			}
			other.put(item{at: p.world.now + delay, from: p.machine.index, message: message})
		}
	}
}

// Subscribe implements env.Gossip.
func (p *process) Subscribe(_ context.Context, handle func(from identity.ID, message []byte) error) error {
	p.listen = handle
	return nil
}

// roundTrip waits for an answer of another client and returns the client's process as it
// is then.
func (p *process) roundTrip(ctx context.Context, id identity.ID) (*process, error) {
	w, to := p.world, p.world.index[id]
	there, lost := w.reach(p.machine.index, to)
	back, alsoLost := w.reach(to, p.machine.index)
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
	if lost || other == nil || p.hides(other) || !w.healed && (w.cut[p.machine.index] > 0) != (w.cut[to] > 0) {
		return nil, errUnreachable
	}
	return other, nil
}

// isStarved reports whether a client's machine does nothing.
func (w *world) isStarved(i int) bool { return !w.healed && w.now < w.machines[i].starved }

// Request implements env.Requests.
func (p *process) Request(ctx context.Context, to identity.ID, protocol string, request []byte, maxResponse int) ([]byte, error) {
	if protocol == exchange.PushProtocol {
		return nil, p.push(ctx, p.world.index[to], request)
	}
	other, err := p.roundTrip(ctx, to)
	if err != nil {
		return nil, err
	}
	handle := other.handlers[protocol]
	if handle == nil {
		return nil, errUnreachable
	}
	response, err := handle(ctx, p.machine.id, request)
	if protocol == auditor.OpeningProtocol && (err != nil || other.refusesToOpen(p, request)) {
		if p.world.rules.impatient && p.machine.honest() {
			p.sendAside(coordinator.Accuse{Step: binary.LittleEndian.Uint32(request[32:]), Client: coordinator.ClientID(request), Fault: coordinator.FaultSilent})
		}
		return nil, errNotHeld
	}
	if err == nil && len(response) > maxResponse {
		err = fmt.Errorf("response of %d bytes, at most %d", len(response), maxResponse)
	}
	return response, err
}

// push brings another client a result, which takes one way.
func (p *process) push(ctx context.Context, to int, request []byte) error {
	if p.machine.lies(Equivocation) || p.machine.lies(HiddenResult) { // who gets what is decided as it is gossiped
		return errUnreachable
	}
	delay, lost := p.world.reach(p.machine.index, to)
	if lost {
		_ = p.wait(ctx, p.world.now+requestTimeout)
		return errUnreachable
	}
	other := p.peer(to)
	if other == nil || p.hides(other) || p.world.rules.deaf && p.machine.history() != other.machine.history() {
		return errUnreachable
	}
	other.put(item{at: p.world.now + delay, from: p.machine.index, push: request})
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
		other, err := p.roundTrip(ctx, id)
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

// Sign implements env.Announcements.
func (p *process) Sign(a wire.ResultAnnouncement) []byte {
	p.machine.history().checker.announces(p.machine, a)
	s := statement{p.machine.id, a, p.blobs[a.Blob]}
	registry := &p.world.registry
	of := authored{p.machine.id, a}
	raw, again := registry.raws[of]
	if !again {
		raw = wire.SignAnnouncement(p.machine.key, a)
		registry.raws[of] = raw
	}
	if _, known := registry.opened[string(raw)]; !known {
		registry.opened[string(raw)] = s
		registry.byStep[a.Step] = append(registry.byStep[a.Step], s)
	}
	p.world.note('R', uint64(p.machine.index), uint64(a.Step), func() string {
		return fmt.Sprintf("%s announces a result of step %d, batch %v", p.machine.name(), a.Step, a.Batch)
	})
	return raw
}

// Open implements env.Announcements.
func (p *process) Open(raw []byte, _ [32]byte) (identity.ID, wire.ResultAnnouncement, error) {
	s, known := p.world.registry.opened[string(raw)]
	if !known {
		return identity.ID{}, wire.ResultAnnouncement{}, errForged
	}
	return s.author, s.announcement, nil
}

// Prove implements env.Announcements. A proof goes into the journal: it is of real signatures.
func (p *process) Prove(first, second []byte) (coordinator.Equivocation, bool) {
	var signed [2][]byte
	for i, raw := range [2][]byte{first, second} {
		s := p.world.registry.opened[string(raw)]
		signed[i] = wire.SignAnnouncement(p.world.machines[p.world.index[s.author]].key, s.announcement)
	}
	return wire.NewEquivocation(signed[0], signed[1])
}
