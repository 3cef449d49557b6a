package p2p

import (
	"fmt"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"
)

// TestReservationsAreShared checks that neither waiting clients, of any number of networks, nor
// members of one network can take all reservations of a relay. A reservation is free again when its
// holder has left or is late.
func TestReservationsAreShared(t *testing.T) {
	now := time.Unix(1e9, 0)
	at := func(format string, i int) ma.Multiaddr { return ma.StringCast(fmt.Sprintf(format, i)) }
	for name, test := range map[string]struct {
		from  string
		waits bool
		want  int
	}{
		"waiting, of many networks":    {"/ip4/10.0.%d.1/tcp/1", true, maxWaitingReservations},
		"waiting, of one network":      {"/ip4/10.0.0.%d/tcp/1", true, maxNetworkReservations},
		"members of one network":       {"/ip4/10.0.0.%d/udp/1/quic-v1", false, maxNetworkReservations},
		"members of one IPv6 network":  {"/ip6/2001:db8:0:%d::1/tcp/1", false, maxNetworkReservations},
		"members of many networks":     {"/ip4/10.0.%d.1/tcp/1", false, 200},
		"members of unknown addresses": {"/dns4/m%d.example.org/tcp/1", false, maxNetworkReservations},
	} {
		t.Run(name, func(t *testing.T) {
			var table reservationTable
			gone := make(map[peer.ID]bool)
			there := func(p peer.ID) bool { return !gone[p] }
			take := func(i int, now time.Time) bool {
				return table.take(peer.ID(fmt.Sprint(i)), at(test.from, i), test.waits, there, now)
			}
			got := 0
			for i := range 200 {
				if take(i, now) {
					got++
				}
			}
			if got != test.want {
				t.Fatalf("%d of 200 got a reservation, want %d", got, test.want)
			}
			if !take(0, now) {
				t.Error("a member cannot renew its reservation")
			}
			if test.want == 200 {
				return
			}
			if !table.take("member", at("/ip4/192.0.2.%d/tcp/1", 1), false, there, now) {
				t.Error("the reservation of a member of a different network was refused")
			}
			gone[peer.ID("1")] = true
			if !take(201, now) || take(202, now) {
				t.Error("the reservation of a departed member is not free")
			}
			if !take(203, now.Add(reservationTTL+time.Second)) {
				t.Error("expired reservations are not free")
			}
		})
	}
}
