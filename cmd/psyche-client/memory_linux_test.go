package main

import "testing"

func TestMemoryFields(t *testing.T) {
	for text, want := range map[string]uint64{"MemTotal: 9 kB\nMemAvailable:   12 kB\n": 12, "MemAvailable: x kB": 0, "MemAvailable:": 0, "NoMemAvailable: 12": 0, "": 0} {
		if got := field([]byte(text), "MemAvailable:"); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
