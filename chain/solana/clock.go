package solana

import (
	"encoding/binary"
	"errors"
	"slices"
	"time"
)

// clockSize is the number of bytes of the chain's clock account.
const clockSize = 40

// normalSlot is how long a slot takes where nothing else is known.
const normalSlot = 400 * time.Millisecond

// sample is the chain's clock as an endpoint showed it.
type sample struct {
	at   time.Time // by the own clock
	slot uint64
	unix uint64 // milliseconds, of a whole second
}

// readClock reads the clock account: slot, epoch start, epoch, leader epoch, time in seconds.
func readClock(b []byte) (slot, unix uint64, err error) {
	if len(b) != clockSize {
		return 0, 0, errors.New("clock account: want 40 bytes")
	}
	seconds := int64(binary.LittleEndian.Uint64(b[32:]))
	if seconds < 0 || seconds > 1<<40 {
		return 0, 0, errors.New("account of the chain's clock: the time makes no sense")
	}
	return binary.LittleEndian.Uint64(b), uint64(seconds) * 1000, nil
}

// maxSamples is how many samples of an endpoint count.
const maxSamples = 16

// clock tells the chain's time and slot from what the endpoints showed lately: the middle of
// what they say, so that one alone cannot set it.
type clock struct {
	samples [][]sample // of each endpoint, the newest last
	pace    time.Duration
}

func newClock(endpoints int) *clock {
	return &clock{samples: make([][]sample, endpoints), pace: normalSlot}
}

// observe takes an endpoint's sample. One of a slot before its newest one begins anew: it was
// rolled back, or it never told the truth.
func (c *clock) observe(endpoint int, s sample) {
	all := c.samples[endpoint]
	if len(all) > 0 {
		old := all[len(all)-1]
		switch passed := s.at.Sub(old.at); {
		case s.slot < old.slot || s.unix < old.unix:
			all = nil
		case s.slot > old.slot && passed > 0:
			measured := min(max(passed/time.Duration(s.slot-old.slot), time.Millisecond), 2*normalSlot)
			c.pace += (measured - c.pace) / 4
		}
	}
	if all = append(all, s); len(all) > maxSamples {
		all = all[1:]
	}
	c.samples[endpoint] = all
}

// middle returns the middle of what the endpoints say, or 0 without one.
func (c *clock) middle(of func(samples []sample) uint64) uint64 {
	var all []uint64
	for _, samples := range c.samples {
		if len(samples) > 0 {
			all = append(all, of(samples))
		}
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[(len(all)-1)/2]
}

// now returns the chain's time in milliseconds. A sample has whole seconds, so that the chain's
// time is at least what any of them says.
func (c *clock) now(at time.Time) uint64 {
	return c.middle(func(samples []sample) (most uint64) {
		for _, s := range samples {
			most = max(most, s.unix+uint64(max(at.Sub(s.at), 0).Milliseconds()))
		}
		return most
	})
}

// slot returns the newest slot, rather too early than too late.
func (c *clock) slot(at time.Time) uint64 {
	return c.middle(func(samples []sample) uint64 {
		s := samples[len(samples)-1]
		return s.slot + uint64(max(at.Sub(s.at), 0)/c.pace)
	})
}

// until returns when the chain's time was or will be unix, as far as is known.
func (c *clock) until(unix uint64, now time.Time) time.Time {
	// The chain counts whole seconds: it shows unix at the first one that is not before it.
	whole := (unix + 999) / 1000 * 1000
	return now.Add(time.Duration(clamp(int64(whole-c.now(now)))) * time.Millisecond)
}

// untilSlot returns when the chain was or will be in a slot, as far as is known.
func (c *clock) untilSlot(slot uint64, now time.Time) time.Time {
	return now.Add(time.Duration(clamp(int64(slot-c.slot(now)))) * c.pace)
}

// clamp bounds a difference so that it can be multiplied to a time.
func clamp(difference int64) int64 {
	const bound = int64(1e9) // milliseconds or slots: days
	return min(max(difference, -bound), bound)
}
