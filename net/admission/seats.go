package admission

import (
	"net"
	"net/netip"
)

// SeatNetwork returns the network whose clients share the seats of a run that one network may
// have: /24 of IPv4, /48 of IPv6, which is what one site gets. private says that it is of this machine,
// or a private network: strangers have no such addresses, but where there is a proxy, a NAT or a tunnel
// before the server they all come from one. The network is not valid for what is no address.
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
	network, _ = address.Prefix(bits) // an address has so many bits
	return network, private
}
