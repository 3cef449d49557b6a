package solana

import (
	"slices"
	"time"

	"github.com/psyche-go/psyche/chain/rpc"
	"github.com/psyche-go/psyche/chain/transaction"
)

// maxAttempts limits the signatures of one instruction.
const maxAttempts = 4

// longestLife limits the life of one signature, even if an endpoint reports a later last block.
const longestLife = 2 * time.Minute

// step is the next operation on a transaction.
type step uint8

// The steps.
const (
	stepWait step = iota
	stepSend      // send the newest attempt to all endpoints
	stepSign      // sign again, because no earlier attempt can land any more
	stepDone      // finished; see result
	stepLost      // finished with an unknown result
)

// attempt is one signature of the same instructions.
type attempt struct {
	name      transaction.Signature
	raw       []byte
	lastValid uint64 // block height
	signed    time.Time
	price     uint64
	units     uint32
	known     []*rpc.Status // newest answer of each endpoint
}

// delivery is the state machine that delivers a transaction. It sends the transaction every slot
// until an endpoint has seen it land, and less often afterwards. It signs again once no earlier
// attempt can land any more. It ends when a quorum of endpoints agrees on the result. Callers pass
// in the time and the endpoints' answers.
type delivery struct {
	quorum   int
	resend   time.Duration // interval until an endpoint has seen it land
	repeat   time.Duration // interval afterwards: that endpoint may have been on another fork
	attempts []attempt
	heights  []uint64 // newest block of each endpoint
	sent     time.Time
	only     bool      // do not sign again
	halted   time.Time // end of sending
}

// signed starts a new attempt.
func (d *delivery) signed(a attempt) {
	a.known = make([]*rpc.Status, len(d.heights))
	d.attempts = append(d.attempts, a)
	d.sent = time.Time{}
}

// answered processes an endpoint's statuses of all attempts, and its newest block.
func (d *delivery) answered(endpoint int, statuses []*rpc.Status, height uint64) {
	for i := range min(len(statuses), len(d.attempts)) {
		d.attempts[i].known[endpoint] = statuses[i]
	}
	d.heights[endpoint] = max(d.heights[endpoint], height)
}

// next returns the next step. After stepSend the attempt counts as sent.
func (d *delivery) next(now time.Time) step {
	if len(d.attempts) == 0 {
		return stepSign
	}
	if _, _, done := d.result(); done {
		return stepDone
	}
	newest := &d.attempts[len(d.attempts)-1]
	switch {
	case !d.expired(newest, now):
		interval := d.resend
		if newest.isSeen() {
			interval = d.repeat
		}
		if d.sent.IsZero() || now.Sub(d.sent) >= interval {
			d.sent = now
			return stepSend
		}
		return stepWait
	case d.seen() != nil && now.Sub(newest.signed) < 2*longestLife:
		return stepWait // an endpoint saw it land; the others will follow
	case d.only || len(d.attempts) == maxAttempts:
		return stepLost
	}
	return stepSign
}

// expired reports whether a quorum is past an attempt's last block.
func (d *delivery) expired(a *attempt, now time.Time) bool {
	past := 0
	for _, height := range d.heights {
		if height > a.lastValid {
			past++
		}
	}
	return past >= d.quorum || now.Sub(a.signed) >= longestLife
}

// seen returns an attempt that any endpoint has seen land, or nil.
func (d *delivery) seen() *attempt {
	if i := slices.IndexFunc(d.attempts, func(a attempt) bool { return a.isSeen() }); i >= 0 {
		return &d.attempts[i]
	}
	return nil
}

// isSeen reports whether any endpoint has seen the attempt land.
func (a *attempt) isSeen() bool {
	return slices.ContainsFunc(a.known, func(status *rpc.Status) bool { return status != nil })
}

// result returns the attempt that a quorum reports as confirmed, with its status.
func (d *delivery) result() (a *attempt, how *rpc.Status, done bool) {
	for i := range d.attempts {
		counts := make(map[rpc.TransactionError]int)
		for _, status := range d.attempts[i].known {
			if status == nil || !status.Reached(rpc.Confirmed) {
				continue
			}
			var key rpc.TransactionError
			if status.Err != nil {
				key = *status.Err
			}
			if counts[key]++; counts[key] >= d.quorum {
				return &d.attempts[i], status, true
			}
		}
	}
	return nil, nil, false
}

// halt stops sending. It returns stepWait during the grace period, in which sent attempts may still
// land, and stepLost afterwards.
func (d *delivery) halt(now time.Time, grace time.Duration) step {
	if len(d.attempts) == 0 {
		return stepLost
	}
	if d.halted.IsZero() {
		d.halted = now
	}
	if now.Sub(d.halted) >= grace {
		return stepLost
	}
	return stepWait
}
