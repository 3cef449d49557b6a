package privatenet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// ErrInner means that an address is not public.
var ErrInner = errors.New("address of a private network")

// Loopback are the addresses of the machine itself.
var Loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}

// networks are the ranges of private networks: a machine may have such an address, but the internet
// cannot reach it.
var networks = append([]netip.Prefix{
	netip.MustParsePrefix("10.0.0.0/8"),
	netip.MustParsePrefix("172.16.0.0/12"),
	netip.MustParsePrefix("192.168.0.0/16"),
	netip.MustParsePrefix("100.64.0.0/10"),  // carrier-grade NAT
	netip.MustParsePrefix("169.254.0.0/16"), // link-local; clouds also serve a machine's secrets here
	netip.MustParsePrefix("198.18.0.0/15"),  // benchmarks of network devices
	netip.MustParsePrefix("fc00::/7"),
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("fec0::/10"),
}, Loopback...)

// nowhere contains prefixes of addresses that belong to no single machine, and of IPv6 addresses that
// embed an arbitrary IPv4 address.
var nowhere = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("224.0.0.0/3"), // multicast, reserved and broadcast
	netip.MustParsePrefix("::/96"),
	netip.MustParsePrefix("64:ff9b::/96"),
	netip.MustParsePrefix("64:ff9b:1::/48"),
	netip.MustParsePrefix("2001::/32"),
	netip.MustParsePrefix("2002::/16"),
	netip.MustParsePrefix("ff00::/8"),
}

// Range returns the private network that contains an address. If ok is false, the address is
// public, or belongs to no single machine.
func Range(addr netip.Addr) (network netip.Prefix, ok bool) { return find(networks, addr) }

// Public reports whether an address is public.
func Public(addr netip.Addr) bool {
	_, inner := find(networks, addr)
	_, lost := find(nowhere, addr)
	return addr.IsValid() && !inner && !lost
}

func find(in []netip.Prefix, addr netip.Addr) (netip.Prefix, bool) {
	addr = addr.Unmap().WithZone("")
	for _, network := range in {
		if network.Contains(addr) {
			return network, true
		}
	}
	return netip.Prefix{}, false
}

// refuse is the Control function of a net.Dialer. It receives resolved addresses, and rejects all
// that are not public.
func refuse(_, address string, _ syscall.RawConn) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return err
	}
	if !Public(addr) {
		return fmt.Errorf("%w: %s", ErrInner, addr)
	}
	return nil
}

// Dialer returns a dialer that rejects all addresses that are not public. If inner is true, it
// rejects none.
func Dialer(inner bool) *net.Dialer {
	if inner {
		return &net.Dialer{}
	}
	return &net.Dialer{Control: refuse}
}
