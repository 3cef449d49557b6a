package layout

import (
	"bytes"
	"fmt"

	"github.com/psyche-go/psyche/record/backend"
)

const (
	// PeerSize is the size of a peer's account in bytes, for the addresses that package backend allows.
	PeerSize = peerAddrs + (1+2*backend.MaxAddrs+backend.MaxAddrsTotal+7)/8*8

	peerAddrs = 88
)

// Peer is the account with a client's addresses for one run.
type Peer struct {
	Run, Owner [32]byte
	Slot       uint64 // of the announcement
	Addrs      []string
}

// ReadPeer parses a peer's account.
func ReadPeer(b []byte) (Peer, error) {
	if len(b) != PeerSize {
		return Peer{}, fmt.Errorf("account of a peer: %d bytes, want %d", len(b), PeerSize)
	}
	if err := checkMagic(b, PeerMagic, "a peer"); err != nil {
		return Peer{}, err
	}
	size := le.Uint32(b[12:])
	if size > PeerSize-peerAddrs {
		return Peer{}, fmt.Errorf("account of a peer: %d bytes of addresses, at most %d are allowed", size, PeerSize-peerAddrs)
	}
	addrs, err := readAddrs(b[peerAddrs : peerAddrs+int(size)])
	if err != nil {
		return Peer{}, fmt.Errorf("account of a peer: %w", err)
	}
	if rest := b[peerAddrs+int(size):]; !bytes.Equal(rest, make([]byte, len(rest))) {
		return Peer{}, fmt.Errorf("account of a peer: data after its %d bytes of addresses", size)
	}
	return Peer{Run: [32]byte(b[16:]), Owner: [32]byte(b[48:]), Slot: le.Uint64(b[80:]), Addrs: addrs}, nil
}

// AppendAddrs appends addresses in the format of an announcement.
func AppendAddrs(b []byte, addrs []string) []byte {
	b = append(b, uint8(len(addrs)))
	for _, addr := range addrs {
		b = append(le.AppendUint16(b, uint16(len(addr))), addr...)
	}
	return b
}

// readAddrs parses the output of AppendAddrs.
func readAddrs(b []byte) ([]string, error) {
	if len(b) == 0 || b[0] > backend.MaxAddrs {
		return nil, fmt.Errorf("addresses: want a number up to %d", backend.MaxAddrs)
	}
	var addrs []string
	total, rest := 0, b[1:]
	for i := range int(b[0]) {
		if len(rest) < 2 {
			return nil, fmt.Errorf("addresses: end before address %d of %d", i, b[0])
		}
		n := int(le.Uint16(rest))
		rest = rest[2:]
		if total += n; n == 0 || n > backend.MaxAddrLength || total > backend.MaxAddrsTotal || n > len(rest) {
			return nil, fmt.Errorf("addresses: address %d has %d bytes, want 1 to %d, and at most %d for all addresses", i, n, backend.MaxAddrLength, backend.MaxAddrsTotal)
		}
		for _, c := range rest[:n] {
			if c <= ' ' || c > '~' {
				return nil, fmt.Errorf("addresses: address %d has byte %#02x, want printable ASCII", i, c)
			}
		}
		addrs = append(addrs, string(rest[:n]))
		rest = rest[n:]
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("addresses: %d bytes after the last address", len(rest))
	}
	return addrs, nil
}
