package config

import (
	"math"
	"strconv"

	"github.com/psyche-go/psyche/core/coordinator"
)

// seconds reads a time that must be there. Files give it in seconds, the coordinator counts
// milliseconds.
func (t *table) seconds(key string) uint64 {
	value, ok := t.required(key)
	if !ok {
		return 0
	}
	return t.toMilliseconds(key, value)
}

// secondsOr reads a time, or returns fallback, in milliseconds, when the key is not there.
func (t *table) secondsOr(key string, fallback uint64) uint64 {
	if !t.has(key) {
		return fallback
	}
	return t.toMilliseconds(key, t.values[key])
}

func (t *table) toMilliseconds(key string, value any) uint64 {
	const most = coordinator.MaxTime / 1000
	var seconds float64
	switch value := value.(type) {
	case float64:
		seconds = value
	case int64:
		seconds = float64(value) // exact as far as a time may go
	default:
		t.fail(key, "want a number of seconds, found %s", describe(value))
		return 0
	}
	if !(seconds >= 0 && seconds <= most) { // nor is it a NaN
		t.fail(key, "%s is out of range, want 0 to %d seconds", decimal(seconds), most)
		return 0
	}
	ms := math.Round(seconds * 1000)
	if ms/1000 != seconds { // a decimal number of milliseconds is the same number whichever way it was made
		t.fail(key, "%s is finer than a millisecond, which the clock of a run counts: want a multiple of 0.001", decimal(seconds))
		return 0
	}
	return uint64(ms)
}

// inSeconds writes a time as files give it.
func inSeconds(ms uint64) string { return decimal(float64(ms) / 1000) }

func decimal(number float64) string { return strconv.FormatFloat(number, 'f', -1, 64) }
