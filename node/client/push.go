package client

import (
	"slices"
	"time"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/node/exchange"
)

// Limits of pushed results. All copies of a result together may have freelyPushed bytes, which take a
// tenth of a second at 20 Mbit/s. They may have more if they take at most longestPush, and at most
// 1/pushShare of the time in which this client makes a result. The client expects them to take as long
// per byte as its last pushes. The first pushes, which measure the time, have untriedPushes bytes.
//
// Gossip announces the result pushGrace after the expected end of the pushes. The client expects them
// to take as long as its last pushes, or as long as freelyPushed bytes at pushRate if that is longer.
const (
	freelyPushed  = 256 << 10
	untriedPushes = 2 << 20
	pushShare     = 4
	longestPush   = time.Second
	pushGrace     = 250 * time.Millisecond
	pushRate      = 125_000 // bytes per second
)

// pushPause is the number of results that this client does not push to a member after a push to it
// took longer than requestTimeout. On a link of 0.25 Mbit/s, such a push only delays the transfer
// that the member starts after the announcement. If no member got pushed results in time, the
// client pushes nothing for pushPause results, and then tries again. Each failed attempt doubles
// this number, up to pushPause·2^maxPushPauses, because on a slow link the attempt delays the
// result.
const (
	pushPause     = 16
	maxPushPauses = 6
)

// pusher decides which results are pushed, and tracks the success of pushes. Only the loop uses it.
type pusher struct {
	paused  map[identity.ID]int // number of next results that are not pushed to a member
	took    time.Duration       // time until half of the members had the newest pushed result; 0: unknown
	sent    int                 // bytes of the pushes of this result
	skipped int                 // number of later results that would have taken too long to push
	pauses  int                 // number of such pauses in succession, at most maxPushPauses
	tries   int                 // number of pushes that only measured the time
}

// members returns the members that the next result is pushed to. If some is true, these members only
// measure the time of a push, and more members are reachable. round is the time in which this client
// made the result.
func (p *pusher) members(all []identity.ID, size int, round time.Duration) (reached []identity.ID, some bool) {
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
	total := size * len(reached)
	switch {
	case size > exchange.MaxPushed:
		return nil, false
	case total <= freelyPushed:
		return reached, false
	case p.took == 0:
		tried := min(untriedPushes/size, len(reached))
		if tried == len(reached) || tried == 0 {
			return reached[:tried], tried < len(reached)
		}
		from := p.tries % len(reached) // other members than last time, which may have refused
		p.tries += tried
		return slices.Concat(reached[from:], reached[:from])[:tried], true
	case p.expected(total) <= min(round/pushShare, longestPush):
		p.pauses = 0
		return reached, false
	}
	if p.skipped++; p.skipped == pushPause<<p.pauses {
		p.took, p.sent, p.skipped = 0, 0, 0
		p.pauses = min(p.pauses+1, maxPushPauses)
	}
	return nil, false
}

// expected returns the time that pushes of total bytes will take, judging by the last pushes.
func (p *pusher) expected(total int) time.Duration {
	if total <= p.sent || p.sent == 0 {
		return p.took
	}
	return time.Duration(float64(p.took) * float64(total) / float64(p.sent))
}

// finished records which members did not get a result of size bytes in time.
func (p *pusher) finished(members []identity.ID, size int, late []bool, took time.Duration) {
	p.took, p.sent, p.skipped = took, size*len(members), 0
	if took == 0 && p.sent > freelyPushed && slices.Contains(late, true) {
		p.took = requestTimeout
	}
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
	return pushGrace + max(time.Duration(min(total, freelyPushed))*time.Second/pushRate, p.expected(total))
}
