package programtest

import (
	"github.com/psyche-go/psyche/core/coordinator"
)

// seats makes more clients wait than there are seats, in every phase. This tests which clients are
// evicted, drawn, and remembered after too many have left.
func seats(r *pair, seed uint64) error {
	g := newGenerator(seed, 8+int(seed%9))
	config := crowdConfig
	config.RoundsPerEpoch, config.VerificationPercent = 1+uint32(seed%3), uint8(seed%2*50)
	config.ProbationSteps = oneOf[uint32](g, 0, 1, 3, 3, 9)
	config.InitMinClients = uint16(2 + g.IntN(4*len(g.ids)))
	genesis := coordinator.Genesis{RunID: "seats", Host: clientID(0), MainAuthority: clientID(1), JoinAuthority: clientID(2), Config: config, Model: crowdModel, Permissioned: g.rarely(4)}
	if code, err := r.genesis(genesis); code != 0 || err != nil {
		return err
	}
	l := seatsRun{lateRun{generator: g, r: r}, 0}
	if genesis.Permissioned {
		for i := range 64 {
			l.send(clientID(2), coordinator.Authorize{Grantee: strangerID(i), Allowed: true})
			l.send(strangerID(i), coordinator.SetDelegates{Number: uint32(i + 1), Delegates: []coordinator.ClientID{
				strangerID(i + 64), strangerID(i + 128), strangerID(i + 192), strangerID(i + 256),
			}})
		}
		for _, id := range g.ids {
			l.send(clientID(2), coordinator.Authorize{Grantee: id, Allowed: true})
		}
	}
	for range 24 {
		l.step()
		l.crowd()
	}
	return l.err
}

type seatsRun struct {
	lateRun
	next int // unknown client
}

func strangerID(i int) coordinator.ClientID { return clientID(500_000 + i) }

// join makes a number of unknown clients join. Some do not stay.
func (l *seatsRun) join(count, leave int) {
	epoch := l.r.s.Progress.Epoch
	for range count {
		id := strangerID(l.next % 300)
		l.next++
		l.send(id, coordinator.Join{Epoch: epoch})
		if leave > 0 && l.rarely(leave) {
			l.send(id, coordinator.Withdraw{Client: id})
		}
	}
}

// crowd makes unknown clients, members, and clients with special keys join and leave.
func (l *seatsRun) crowd() {
	s := &l.r.s
	switch l.IntN(7) {
	case 0:
		l.join(coordinator.MaxClients-len(s.Pending), 0)
	case 1:
		l.join(20+l.IntN(20), 0)
	case 2:
		l.join(40, 1) // all leave at once
		l.join(l.IntN(10), 2)
	case 3:
		for _, id := range l.shuffled()[:2] {
			l.send(oneOf(l.generator, id, s.Host), coordinator.Withdraw{Client: id})
			l.send(id, coordinator.Join{Epoch: s.Progress.Epoch})
		}
	case 4: // the epoch needs newcomers
		for i := range s.Epoch.Clients {
			if id := s.Epoch.Clients[i].ID; i > 0 {
				l.send(id, coordinator.Withdraw{Client: id})
			}
		}
		l.join(30, 0)
	case 5:
		for i := range 3 {
			l.send(clientID(i), coordinator.Join{Epoch: s.Progress.Epoch})
		}
		l.send(l.id(), coordinator.Join{Epoch: s.Progress.Epoch})
	default:
		l.remember()
	}
}

// remember fills the list of departed clients with unknown clients. Some were members.
func (l *seatsRun) remember() {
	s := l.r.s.Clone()
	s.Departed = nil
	for i := range coordinator.MaxClients - l.IntN(3) {
		s.Departed = append(s.Departed, l.stranger(&s, i, oneOf(l.generator, coordinator.Withdrawn, coordinator.Dropped, coordinator.Ejected)))
	}
	if s.Check() == nil && l.err == nil {
		l.err = l.r.load(s)
	}
}

// epochNeedsNewcomers makes all members but one leave before the first round. The next epoch admits
// as many newcomers as it needs, which is more than the usual limit.
func epochNeedsNewcomers(r *pair) error {
	config := crowdConfig
	config.ProbationSteps, config.InitMinClients = 2, 5
	c := &crowd{r: r, now: 100 * second}
	if _, err := r.genesis(coordinator.Genesis{RunID: "few", Host: clientID(0), Config: config, Model: crowdModel}); err != nil {
		return err
	}
	for i := range 6 {
		c.must(clientID(i), coordinator.Join{})
	}
	c.tick(0, coordinator.WaitingForMembers)
	c.tick(3*second, coordinator.Warmup)
	for i := range 5 {
		c.must(clientID(i), coordinator.Withdraw{Client: clientID(i)})
	}
	c.tick(0, coordinator.WaitingForMembers)
	for i := range 20 {
		c.must(strangerID(i), coordinator.Join{})
	}
	c.tick(0, coordinator.WaitingForMembers)
	c.tick(3*second, coordinator.Warmup)
	if members, waiting := len(r.s.Epoch.Clients), len(r.s.Pending); members != 5 || waiting != 16 {
		c.fail("%d members and %d that wait, want 5 and 16", members, waiting)
	}
	return c.err
}
