package admission

import (
	"net"
	"net/netip"
)

// SeatNetwork returns the network whose clients share the seats of a run that one network may
// have: /24 of IPv4, /48 of IPv6, which is what one site gets. bounded is false for addresses of
// this machine and of private networks, of which strangers have none, and for what is no address.
func SeatNetwork(remote net.Addr) (network netip.Prefix, bounded bool) {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}, false
	}
	address := tcp.AddrPort().Addr().Unmap().WithZone("")
	if !address.IsValid() || address.IsLoopback() || address.IsPrivate() || address.IsLinkLocalUnicast() {
		return netip.Prefix{}, false
	}
	bits := 48
	if address.Is4() {
		bits = 24
	}
	network, err := address.Prefix(bits)
	return network, err == nil
}
