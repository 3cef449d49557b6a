package backend

import (
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/record/wire"
)

// Errors that every backend uses. Only ErrDisconnected is worth another attempt.
var (
	ErrDisconnected = errors.New("connection to the run's host was lost")
	ErrClosed       = errors.New("backend is closed")
	ErrDuplicateKey = errors.New("another client with the same key is connected")
	ErrWrongRun     = errors.New("the host does not host this run")
	ErrInvalidPeer  = errors.New("invalid peer addresses")
)

// Update is what a host sends when something changed.
type Update struct {
	State *coordinator.State
	Peers []Peer // in ascending order of ID

	// Run is the hash that names the run in everything that is signed. It never changes.
	Run [32]byte
	// Genesis is what the run began with, signed. Nil where nobody signs it.
	Genesis []byte
	// Starts are the heads of the run's log at the starts of the newest rounds, those in State
	// among them, oldest first, as the host signed them. Nil where no host signs heads.
	Starts []wire.Head
}

// Peer is where a participant is reached on the peer-to-peer network. The host relays the
// addresses as the participant signed them; they are not part of the coordinator's state.
type Peer struct {
	ID    identity.ID
	Addrs []string // libp2p multiaddrs
	Name  string   // that it gives itself, as the host says; empty for none, and where no host tells names
	Waits bool     // for a seat in the run: a client says so to its network, no host does
}

// Bounds of one participant's addresses.
const (
	MaxAddrs      = 8    // number
	MaxAddrLength = 256  // bytes of each
	MaxAddrsTotal = 1024 // bytes of all
)

// MaxPeers bounds Update.Peers: the members and the pending clients.
const MaxPeers = 2 * coordinator.MaxClients

// CheckAddrs returns ErrInvalidPeer with the reason when addrs is outside the bounds or
// has an address that is no printable ASCII text, as every multiaddr is.
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
