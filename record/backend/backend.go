package backend

import (
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// Errors of all backends. Only after ErrDisconnected is it useful to try again.
var (
	ErrDisconnected = errors.New("connection to the run's host was lost")
	ErrClosed       = errors.New("backend is closed")
	ErrDuplicateKey = errors.New("another client with the same key is connected")
	ErrWrongRun     = errors.New("the host does not host this run")
	ErrInvalidPeer  = errors.New("invalid peer addresses")
)

// Update is a message that a host sends after a change.
type Update struct {
	State *coordinator.State
	Peers []Peer // in ascending order of ID

	// Run is the hash that identifies the run in all signed messages. It never changes.
	Run [32]byte
	// Genesis is the signed genesis of the run. It is nil if no host signs it, as on a chain.
	Genesis []byte
	// Starts are the heads of the run's log at the starts of the newest rounds, including the
	// rounds in State, oldest first, signed by the host. It is nil if no host signs heads.
	Starts []wire.Head
}

// Peer contains the addresses of a participant on the peer-to-peer network. The host relays the
// addresses as signed by the participant; they are not part of the coordinator's state.
type Peer struct {
	ID    identity.ID
	Addrs []string // libp2p multiaddrs
	Name  string   // name that the participant chose, as reported by the host; empty for none, and if the host reports no names
	Waits bool     // the participant has no seat in the run; set by a client for its network, never by a host
}

// Bounds of one participant's addresses.
const (
	MaxAddrs      = 8    // maximum number
	MaxAddrLength = 256  // maximum bytes of one address
	MaxAddrsTotal = 1024 // maximum bytes of all addresses
)

// MaxPeers is the maximum length of Update.Peers: all members and all pending clients.
const MaxPeers = 2 * coordinator.MaxClients

// CheckAddrs returns ErrInvalidPeer with the reason if addrs exceeds the bounds or contains an
// address that is not printable ASCII text, as every multiaddr is.
func CheckAddrs(addrs []string) error {
	if len(addrs) > MaxAddrs {
		return fmt.Errorf("%w: %d addresses, at most %d", ErrInvalidPeer, len(addrs), MaxAddrs)
	}
	total := 0
	for i, addr := range addrs {
		if len(addr) == 0 || len(addr) > MaxAddrLength {
			return fmt.Errorf("%w: address %d has %d bytes, want 1 to %d", ErrInvalidPeer, i, len(addr), MaxAddrLength)
		}
		for _, c := range []byte(addr) {
			if c <= ' ' || c > '~' {
				return fmt.Errorf("%w: address %d has byte %#02x, want printable ASCII", ErrInvalidPeer, i, c)
			}
		}
		total += len(addr)
	}
	if total > MaxAddrsTotal {
		return fmt.Errorf("%w: %d bytes together, at most %d", ErrInvalidPeer, total, MaxAddrsTotal)
	}
	return nil
}
