package privatenet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
)

func TestRanges(t *testing.T) {
	for text, want := range map[string]struct {
		public bool
		inner  string
	}{
		"8.8.8.8": {true, ""}, "2606:4700::1111": {true, ""}, "172.32.0.1": {true, ""}, "::ffff:8.8.8.8": {true, ""},
		"127.0.0.1": {false, "127.0.0.0/8"}, "127.9.9.9": {false, "127.0.0.0/8"}, "::1": {false, "::1/128"},
		"::ffff:127.0.0.1": {false, "127.0.0.0/8"}, "10.1.2.3": {false, "10.0.0.0/8"}, "172.31.255.255": {false, "172.16.0.0/12"},
		"192.168.1.1": {false, "192.168.0.0/16"}, "::ffff:192.168.1.1": {false, "192.168.0.0/16"},
		"169.254.169.254": {false, "169.254.0.0/16"}, "100.100.100.200": {false, "100.64.0.0/10"},
		"fd00:ec2::254": {false, "fc00::/7"}, "fe80::1%eth0": {false, "fe80::/10"},
		"0.0.0.0": {false, ""}, "::": {false, ""}, "255.255.255.255": {false, ""}, "224.0.0.251": {false, ""}, "ff02::1": {false, ""},
		"64:ff9b::a9fe:a9fe": {false, ""}, "2002:7f00:1::": {false, ""}, "::7f00:1": {false, ""},
	} {
		addr := netip.MustParseAddr(text)
		inner := ""
		if network, ok := Range(addr); ok {
			inner = network.String()
		}
		if Public(addr) != want.public || inner != want.inner {
			t.Errorf("%s: public %v, inner network %q; want %v, %q", text, Public(addr), inner, want.public, want.inner)
		}
	}
	if Public(netip.Addr{}) {
		t.Error("no address is public")
	}
}

// TestRefuse checks that a dialer that uses refuse cannot reach a listener of this machine, by
// address or by name.
func TestRefuse(t *testing.T) {
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	d := net.Dialer{Control: refuse}
	for _, host := range []string{"127.0.0.1", "localhost"} {
		if conn, err := d.DialContext(context.Background(), "tcp", net.JoinHostPort(host, port)); !errors.Is(err, ErrInner) {
			t.Errorf("%s: got %v, %v; want error ErrInner", host, conn, err)
		}
	}
}
