package admission

import (
	"net"
	"testing"
)

func TestSeatNetwork(t *testing.T) {
	for address, want := range map[string]string{
		"203.0.113.7": "203.0.113.0/24", "203.0.113.255": "203.0.113.0/24", "::ffff:203.0.113.9": "203.0.113.0/24", "203.0.112.7": "203.0.112.0/24",
		"2001:db8:1:2::3": "2001:db8:1::/48", "2001:db8:1:ffff::": "2001:db8:1::/48", "2001:db8:2::": "2001:db8:2::/48",
		"127.0.0.1": "", "127.9.3.1": "", "::1": "", "10.1.2.3": "", "192.168.0.9": "", "172.16.0.1": "", "fd00::1": "", "169.254.0.1": "", "fe80::1": "",
	} {
		network, bounded := SeatNetwork(&net.TCPAddr{IP: net.ParseIP(address)})
		if bounded != (want != "") || bounded && network.String() != want {
			t.Errorf("%s: %v, bounded %t, want %q", address, network, bounded, want)
		}
	}
	if _, bounded := SeatNetwork(&net.UnixAddr{}); bounded {
		t.Error("a path has a network")
	}
}
