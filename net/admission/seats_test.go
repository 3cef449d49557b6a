package admission

import (
	"net"
	"testing"
)

func TestSeatNetwork(t *testing.T) {
	for address, want := range map[string]string{
		"203.0.113.7": "203.0.113.0/24", "203.0.113.255": "203.0.113.0/24", "::ffff:203.0.113.9": "203.0.113.0/24", "203.0.112.7": "203.0.112.0/24",
		"2001:db8:1:2::3": "2001:db8:1::/48", "2001:db8:1:ffff::": "2001:db8:1::/48", "2001:db8:2::": "2001:db8:2::/48",
		"127.0.0.1": "private 127.0.0.0/24", "127.9.3.1": "private 127.9.3.0/24", "::1": "private ::/48", "10.1.2.3": "private 10.1.2.0/24",
		"192.168.0.9": "private 192.168.0.0/24", "172.16.0.1": "private 172.16.0.0/24", "fd00::1": "private fd00::/48",
		"169.254.0.1": "private 169.254.0.0/24", "fe80::1": "private fe80::/48",
	} {
		network, private := SeatNetwork(&net.TCPAddr{IP: net.ParseIP(address)})
		got := network.String()
		if private {
			got = "private " + got
		}
		if got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
	if network, _ := SeatNetwork(&net.UnixAddr{}); network.IsValid() {
		t.Error("a path has a network")
	}
}
