package p2p

import (
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
)

func everybody(peer.ID) bool { return true }
func nobody(peer.ID) bool    { return false }

// dialled counts the permitted dials to a member with the given number of addresses, tried every
// second for a time.
func dialled(d *dials, p peer.ID, addrs int, ip netip.Addr, way reach, lasting time.Duration) (count int) {
	for end := time.Now().Add(lasting); time.Now().Before(end); time.Sleep(sameDial) {
		for i := range addrs {
			if d.allow(p, ip, fmt.Sprint(ip, i), func() reach { return way }, everybody) {
				count++
			}
		}
	}
	return count
}

func TestDialsElsewhereAreFew(t *testing.T) {
	victim := netip.MustParseAddr("192.0.2.1")
	for _, test := range []struct {
		name           string
		addrs          int
		reach          reach
		lasting        time.Duration
		minimum, count int
	}{
		{"at once", 16, reachesOthers, 30 * time.Second, unprovenAtOnce, unprovenAtOnce},
		{"a day", 16, reachesOthers, 24 * time.Hour, 50, 12 + 24*4},
		{"one address, a day", 1, reachesOthers, 24 * time.Hour, 15, 23},
		{"nobody is connected", 2, reachesNobody, time.Hour, 60, 12 + 60 + 4},
		{"through a relay", 2, reachedByRelay, time.Hour, 12, 12 + 6 + 6 + 4},
	} {
		synctest.Test(t, func(t *testing.T) {
			if got := dialled(newDials(), "a", test.addrs, victim, test.reach, test.lasting); got < test.minimum || got > test.count {
				t.Errorf("%s: %d dials, want %d to %d", test.name, got, test.minimum, test.count)
			}
		})
	}
}

// TestDialsWhereAMemberIs checks that dials to a proven address of a member are unlimited until the
// member has been away for an hour.
func TestDialsWhereAMemberIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, home := newDials(), netip.MustParseAddr("192.0.2.1")
		d.seen("a", home, everybody)
		if got := dialled(d, "a", 1, home, reachesOthers, 50*time.Minute); got != 50*60 {
			t.Errorf("%d dials in 50 min", got)
		}
		time.Sleep(10 * time.Minute)
		if got := dialled(d, "a", 1, home, reachesOthers, time.Hour); got > unprovenAtOnce+4 {
			t.Errorf("%d dials after an hour without it", got)
		}
	})
}

// TestDialRecordsAreBounded checks that more addresses, IPs or members do not need more memory.
func TestDialRecordsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDials()
		at := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}) }
		for i := range 1000 {
			d.allow("a", at(i), fmt.Sprint(i), func() reach { return reachesOthers }, everybody)
			d.seen("a", at(i), everybody)
		}
		if r := d.by["a"]; len(r.tried) > maxAddrsTried || len(r.proven) > maxIPsProven {
			t.Errorf("%d addresses, %d IPs", len(r.tried), len(r.proven))
		}
		for i := range 2 * maxDialRecords {
			d.seen(peer.ID(fmt.Sprint(i)), at(i), nobody)
		}
		if len(d.by) > maxDialRecords {
			t.Errorf("%d members", len(d.by))
		}
	})
}

// TestReaches checks which addresses nodes of several networks may dial.
func TestReaches(t *testing.T) {
	ips := map[string]netip.Addr{}
	for _, text := range []string{"127.0.0.1", "::1", "10.0.0.9", "192.168.7.7", "169.254.169.254", "0.0.0.0", "224.0.0.1", "8.8.8.8", "fd00::1"} {
		ips[text] = netip.MustParseAddr(text)
	}
	for _, test := range []struct {
		own  []string
		want []string
	}{
		{[]string{"8.8.4.4"}, []string{"8.8.8.8"}},
		{[]string{"127.0.0.1"}, []string{"8.8.8.8", "127.0.0.1", "::1"}},
		{[]string{"127.0.0.1", "192.168.1.2"}, []string{"8.8.8.8", "192.168.7.7"}},
		{[]string{"10.1.1.1", "fd12::1"}, []string{"8.8.8.8", "10.0.0.9", "fd00::1"}},
	} {
		var own []netip.Addr
		for _, text := range test.own {
			own = append(own, netip.MustParseAddr(text))
		}
		for text, ip := range ips {
			want := false
			for _, w := range test.want {
				want = want || w == text
			}
			if got := mayReach(own, ip); got != want {
				t.Errorf("a node at %v reaches %s: %v, want %v", test.own, text, got, want)
			}
		}
	}
}
