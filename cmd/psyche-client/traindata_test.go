package main

import "testing"

// TestDataServerOfTheRunsHost checks that a data server belongs to the run's host only if both
// addresses have the same host. The ports may differ.
func TestDataServerOfTheRunsHost(t *testing.T) {
	for _, test := range []struct {
		data, server string
		want         bool
	}{
		{"127.0.0.1:20001", "127.0.0.1:39405", true},
		{"Host.example:1", "host.example:2", true},
		{"[::1]:1", "[::1]:2", true},
		{"127.0.0.2:1", "127.0.0.1:1", false},
		{"127.0.0.1", "127.0.0.1", false},
	} {
		if got := sameHost(test.data, test.server); got != test.want {
			t.Errorf("%s and %s: %v", test.data, test.server, got)
		}
	}
}
