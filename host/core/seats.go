package core

import (
	"fmt"
	"net/netip"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// Origin is the source network of a connection, and the limit of its seats.
type Origin struct {
	Network netip.Prefix
	Most    int // maximum number of seats for clients of the network; 0: unlimited
}

// seatsError refuses a client because the clients of its network already have the maximum number of
// seats. It wraps coordinator.ErrFull.
type seatsError struct {
	Network netip.Prefix
	Taken   int
}

// Error returns the message with the number of seats.
func (e *seatsError) Error() string {
	return fmt.Sprintf("%d clients from the network %s take part, which is the server's limit for one network", e.Taken, e.Network)
}

// Unwrap returns coordinator.ErrFull.
func (e *seatsError) Unwrap() error { return coordinator.ErrFull }

// seatRefused returns an error for a Join of an unknown key from a network whose clients already
// have the maximum number of seats. The check happens outside the log: the log just lacks the
// refused action. A client that left a running epoch counts too, because it may take back its seat.
// Otherwise a network could give up its seats, replace them with new clients, and return.
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

// seatedFrom returns the networks of all clients that are in the newest epoch, have left it or are
// pending: the network of the current connection, or else of the Join. After a restart the host
// knows only current connections.
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

// Seated returns the clients that are in the newest epoch, have left it, or are pending.
func (h *Host) Seated() (ids []identity.ID) { return seatedIn(h.state) }

func seatedIn(s *coordinator.State) (ids []identity.ID) {
	for _, clients := range [][]coordinator.Client{s.Epoch.Clients, s.Epoch.Exited, s.Pending} {
		for i := range clients {
			ids = append(ids, identity.ID(clients[i].ID))
		}
	}
	return ids
}

// RoleKeys returns the keys with a role in the run: host, main authority and join authority.
func (h *Host) RoleKeys() map[identity.ID]bool {
	return map[identity.ID]bool{
		identity.ID(h.state.Host): true, identity.ID(h.state.Authority.Main): true, identity.ID(h.state.Authority.Join): true,
	}
}

// Known returns the keys that always get a connection: clients that are in the epoch, have left it
// or are pending, keys with a role, and in a permissioned run all authorized keys. The number of
// each kind is bounded.
func (h *Host) Known() map[identity.ID]bool {
	ids := h.RoleKeys()
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
