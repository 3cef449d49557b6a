package p2p

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/base/identity"
)

// TestStallsEndWithTheConnection checks that a new connection forgives the stalls of a member that
// was asked while it was away. A member cannot abuse this. The score is reset at most once in the
// time in which half of it is forgiven anyway, and only stalls are forgiven.
func TestStallsEndWithTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := records{by: make(map[identity.ID]*conduct)}
		add := func(id identity.ID, fault Fault, times int) {
			for range times {
				s.add(id, fault, "")
			}
		}
		honest, corrupt := identity.ID{1}, identity.ID{2}
		s.connected(honest)
		add(honest, FaultStall, 3)
		if s.connected(honest); s.points(honest) != 0 {
			t.Errorf("%v points remain for stalls", s.points(honest))
		}
		add(honest, FaultStall, 2)
		if s.connected(honest); s.points(honest) != 20 {
			t.Errorf("a second connection leaves %v of 20 points", s.points(honest))
		}
		time.Sleep(forgiveness)
		if s.connected(honest); s.points(honest) != 0 {
			t.Errorf("%v points are left after a while", s.points(honest))
		}
		add(corrupt, FaultWrongBytes, 20)
		add(corrupt, FaultStall, 50)
		if s.connected(corrupt); s.points(corrupt) != maxPenalty {
			t.Errorf("the sender of wrong bytes has %v points", s.points(corrupt))
		}
		add(honest, FaultFlood, 1)
		add(honest, FaultStall, 40)
		time.Sleep(forgiveness)
		if grave := s.gravePoints(honest); s.points(honest) < avoidedFrom || grave != FaultFlood.points()/2 {
			t.Errorf("%v points without stalls remain of %v", grave, FaultFlood.points())
		}
	})
}
