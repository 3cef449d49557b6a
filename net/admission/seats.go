package admission

import (
	"net"
	"net/netip"
)

// SeatNetwork returns the network whose seats in a run are limited together: /24 of IPv4 or /48 of
// IPv6, the usual allocation of one site. private reports whether the address belongs to this
// machine or a private network. Unknown clients on the internet have no private addresses. But if a
// proxy, a NAT or a tunnel is in front of the server, all clients behind it share one. The network
// is invalid if remote is not an IP address.
func SeatNetwork(remote net.Addr) (network netip.Prefix, private bool) {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}, false
	}
	address := tcp.AddrPort().Addr().Unmap().WithZone("")
	if !address.IsValid() {
		return netip.Prefix{}, false
	}
	private = address.IsLoopback() || address.IsPrivate() || address.IsLinkLocalUnicast()
	bits := 48
	if address.Is4() {
		bits = 24
	}
	network, _ = address.Prefix(bits) // the address has at least that many bits
	return network, private
}
