package scenario

import (
	"testing"

	"github.com/psyche-go/psyche/proof/sim/links"
)

// TestMachinesFitTheWait checks plans with links: whichever members train in a round, an honest member's
// training and the transfer of its result to all other members end within the time for which witnesses
// wait. The shortest time is a quarter more than the shortest training.
func TestMachinesFitTheWait(t *testing.T) {
	for _, clients := range []int{2, 5, 8, 12, 24, 64} {
		for seed := uint64(1); seed <= 1000; seed++ {
			for _, faults := range []Faults{NoFaults, AllFaults, Coalition | Hog} {
				p := New(Options{Seed: seed, Clients: clients, Rounds: 4, Faults: faults, Links: true})
				shortest := p.Links.Train
				for i := range clients {
					least, _ := p.Links.Training(i)
					shortest = min(shortest, least)
				}
				for i := range clients {
					_, most := p.Links.Training(i)
					up := p.Links.Access[i].Up
					sends := int64(clients-1) * p.Links.Result * second / up.Rate
					if up.Discipline == links.FIFO {
						sends += up.Buffer
					}
					if limit := shortest * 5 / 4; most+sends > limit {
						t.Fatalf("seed %d, %d clients, faults %v: client %d trains for up to %d ms and sends for %d ms, want at most %d ms together",
							seed, clients, faults, i, most/1_000_000, sends/1_000_000, limit/1_000_000)
					}
				}
			}
		}
	}
}
