package solana

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"
)

// clockSize is the size of the chain's clock account in bytes.
const clockSize = 40

// normalSlot is the default duration of a slot.
const normalSlot = 400 * time.Millisecond

// sample is an endpoint's reading of the chain's clock.
type sample struct {
	at   time.Time // by the local clock
	slot uint64
	unix uint64 // milliseconds, a multiple of 1000
}

// readClock parses the clock account: slot, epoch start, epoch, leader epoch, time in seconds.
func readClock(b []byte) (slot, unix uint64, err error) {
	if len(b) != clockSize {
		return 0, 0, errors.New("clock account: want 40 bytes")
	}
	seconds := int64(binary.LittleEndian.Uint64(b[32:]))
	if seconds < 0 || seconds > 1<<40 {
		return 0, 0, fmt.Errorf("clock account: the time %d s is out of range", seconds)
	}
	return binary.LittleEndian.Uint64(b), uint64(seconds) * 1000, nil
}

// maxSamples limits the samples per endpoint.
const maxSamples = 16

// clock estimates the chain's time and slot from recent samples. It takes the median of the
// endpoints, so that no single endpoint can set it.
type clock struct {
	samples [][]sample // per endpoint, newest last
	pace    time.Duration
}

func newClock(endpoints int) *clock {
	return &clock{samples: make([][]sample, endpoints), pace: normalSlot}
}

// observe adds an endpoint's sample. A sample of an older slot than the newest one restarts the
// endpoint's history: the endpoint was rolled back, or its samples were wrong.
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

// middle returns the median over the endpoints, or 0 without samples.
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

// now returns the chain's time in milliseconds. Samples are rounded down to seconds, so the chain's
// time is at least that of every sample.
func (c *clock) now(at time.Time) uint64 {
	return c.middle(func(samples []sample) (most uint64) {
		for _, s := range samples {
			most = max(most, s.unix+uint64(max(at.Sub(s.at), 0).Milliseconds()))
		}
		return most
	})
}

// slot returns an estimate of the newest slot, rather too low than too high.
func (c *clock) slot(at time.Time) uint64 {
	return c.middle(func(samples []sample) uint64 {
		s := samples[len(samples)-1]
		return s.slot + uint64(max(at.Sub(s.at), 0)/c.pace)
	})
}

// until returns the estimated local time at which the chain's time was or will be unix.
func (c *clock) until(unix uint64, now time.Time) time.Time {
	// The chain counts whole seconds: it reaches unix at the first second that is not before it.
	whole := (unix + 999) / 1000 * 1000
	return now.Add(time.Duration(clamp(int64(whole-c.now(now)))) * time.Millisecond)
}

// untilSlot returns the estimated local time at which the chain was or will be in a slot.
func (c *clock) untilSlot(slot uint64, now time.Time) time.Time {
	return now.Add(time.Duration(clamp(int64(slot-c.slot(now)))) * c.pace)
}

// clamp limits a difference so that its product with a duration does not overflow.
func clamp(difference int64) int64 {
	const bound = int64(1e9) // milliseconds or slots: days
	return min(max(difference, -bound), bound)
}
