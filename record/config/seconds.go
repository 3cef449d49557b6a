package config

import (
	"math"
	"strconv"

	"github.com/psyche-go/psyche/core/coordinator"
)

// seconds reads a required time in seconds and returns it in milliseconds, the unit of the
// coordinator.
func (t *table) seconds(key string) uint64 {
	value, ok := t.required(key)
	if !ok {
		return 0
	}
	return t.toMilliseconds(key, value)
}

// secondsOr reads a time and returns it in milliseconds, or returns fallback if the key is missing.
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
		seconds = float64(value) // exact for every valid time
	default:
		t.fail(key, "want a number of seconds, found %s", describe(value))
		return 0
	}
	if !(seconds >= 0 && seconds <= most) { // also true for NaN
		t.fail(key, "%s is out of range, want 0 to %d seconds", decimal(seconds), most)
		return 0
	}
	ms := math.Round(seconds * 1000)
	if ms/1000 != seconds { // equal if seconds is a multiple of 0.001
		t.fail(key, "%s is finer than a millisecond, which the clock of a run counts: want a multiple of 0.001", decimal(seconds))
		return 0
	}
	return uint64(ms)
}

// inSeconds formats a time in seconds, the unit of the files.
func inSeconds(ms uint64) string { return decimal(float64(ms) / 1000) }

func decimal(number float64) string { return strconv.FormatFloat(number, 'f', -1, 64) }
