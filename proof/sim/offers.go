package sim

import (
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/proof/sim/random"
)

// offer may send an offer. Members have three speeds and sometimes offer less. Dishonest members
// offer any speed.
func (p *process) offer(step uint32) {
	r := p.world.offers
	level := uint8(80 + 8*(p.machine.Index%3))
	switch {
	case !p.machine.Honest():
		level = random.One(r, uint8(1), level-20, level, level+20, 255)
	case r.Chance(150):
		level -= uint8(r.Between(1, 24))
	case r.Chance(300):
		return
	}
	p.sendAside(coordinator.Offer{Step: step, Level: level})
}
