package core

import (
	"fmt"
	"net/netip"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// Origin is from where a connection comes, as far as that bounds seats.
type Origin struct {
	Network netip.Prefix
	Most    int // seats that clients of the network may have; 0: they are not bounded
}

// seatsError refuses a client of whose network as many take part as may. It is
// coordinator.ErrFull.
type seatsError struct {
	Network netip.Prefix
	Taken   int
}

// Error says how many take part.
func (e *seatsError) Error() string {
	return fmt.Sprintf("%d clients of the network %s take part, and the server lets no more of one in", e.Taken, e.Network)
}

// Unwrap returns coordinator.ErrFull.
func (e *seatsError) Unwrap() error { return coordinator.ErrFull }

// seatRefused refuses a Join of a key that the run does not know, from a network whose clients have
// as many seats as one network may. What the log has does not depend on it: the host leaves out
// what it might have lost. A client that left a running epoch counts as well, since it may take its seat
// back: else a network would give its seats up, let others in, and come back.
func (h *Host) seatRefused(a wire.SignedAction, from Origin) error {
	if _, joins := a.Action.(coordinator.Join); !joins || from.Most == 0 {
		return nil
	}
	taken := 0
	for id, other := range h.seatedFrom() {
		if other == from.Network && id != a.From {
			taken++
		}
	}
	if taken >= from.Most && !h.Known()[a.From] {
		return &seatsError{from.Network, taken}
	}
	h.origins[a.From] = from.Network
	return nil
}

// seatedFrom returns the networks of the clients that are in the newest epoch, left it or wait: where each is
// connected from, or came from when it was let in. A host that starts again knows only the former.
func (h *Host) seatedFrom() map[identity.ID]netip.Prefix {
	seated := make(map[identity.ID]netip.Prefix)
	for _, id := range h.Seated() {
		network, known := h.origins[id]
		if from, live := h.options.Connection(id); live {
			network, known = from.Network, from.Most > 0
		}
		if known {
			seated[id] = network
		}
	}
	h.origins = seated
	return seated
}

// Seated returns the clients that are in the newest epoch, left it, or wait for the next.
func (h *Host) Seated() (ids []identity.ID) { return seatedIn(h.state) }

func seatedIn(s *coordinator.State) (ids []identity.ID) {
	for _, clients := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited, s.Pending} {
		for i := range clients {
			ids = append(ids, identity.ID(clients[i].ID))
		}
	}
	return ids
}

// Offices returns the keys that administer the run.
func (h *Host) Offices() map[identity.ID]bool {
	return map[identity.ID]bool{
		identity.ID(h.state.Host): true, identity.ID(h.state.Authority.Main): true, identity.ID(h.state.Authority.Join): true,
	}
}

// Known returns the keys that always find a place: clients that are in the epoch, that left it and may
// come back, or that wait for the next one; offices; and in a permissioned run all that may join. The
// number of each is bounded.
func (h *Host) Known() map[identity.ID]bool {
	ids := h.Offices()
	for _, id := range h.Seated() {
		ids[id] = true
	}
	for _, a := range h.state.Authority.Authorizations {
		ids[identity.ID(a.Grantee)] = true
		for _, delegate := range a.Delegates {
			ids[identity.ID(delegate)] = true
		}
	}
	return ids
}
