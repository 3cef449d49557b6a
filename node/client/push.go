package client

import (
	"time"

	"github.com/psyche-go/psyche/base/identity"
)

// Limits of pushed results. Pushes of one result to all members have at most maxPushedInAll bytes in
// total, which take a tenth of a second at 20 Mbit/s. Gossip announces the result pushGrace after the
// expected end of the pushes. The client expects them to take as long as its last pushes, or as long
// as at pushRate if that is longer.
const (
	maxPushedInAll = 256 << 10
	pushGrace      = 250 * time.Millisecond
	pushRate       = 125_000 // bytes per second
)

// pushPause is the number of results that this client does not push to a member after a push to it took
// longer than requestTimeout. On a link of 0.25 Mbit/s, such a push only delays the transfer that the
// member starts after the announcement.
const pushPause = 16

// pusher tracks the success of pushes. Only the loop uses it.
type pusher struct {
	paused map[identity.ID]int // number of next results that are not pushed to a member
	took   time.Duration       // time until half of the members had the newest pushed result; 0: unknown
}

// members returns the members that the next result is pushed to.
func (p *pusher) members(all []identity.ID) []identity.ID {
	reached := make([]identity.ID, 0, len(all))
	for _, id := range all {
		if p.paused[id] == 0 {
			reached = append(reached, id)
		}
	}
	for id := range p.paused {
		if p.paused[id]--; p.paused[id] == 0 {
			delete(p.paused, id)
		}
	}
	return reached
}

// finished records which members did not get a result in time.
func (p *pusher) finished(members []identity.ID, late []bool, took time.Duration) {
	p.took = took
	for i, id := range members {
		if !late[i] {
			continue
		}
		if p.paused == nil {
			p.paused = make(map[identity.ID]int)
		}
		p.paused[id] = pushPause
	}
}

// isBack ends the pause of pushes to a member that was away.
func (p *pusher) isBack(id identity.ID) { delete(p.paused, id) }

// wait returns the delay before gossip announces a result whose pushes have total bytes.
func (p *pusher) wait(total int) time.Duration {
	return pushGrace + max(time.Duration(total)*time.Second/pushRate, p.took)
}
