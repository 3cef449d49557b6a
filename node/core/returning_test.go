package core

import "testing"

// TestFailuresOfATerm checks that a member that could not return to an epoch tries again in a new
// term.
func TestFailuresOfATerm(t *testing.T) {
	var f failures
	for range maxRejoins {
		if f.tooMany(0) {
			t.Fatalf("gave up after %d attempts", f.failed)
		}
		f.add(0)
	}
	if !f.tooMany(0) || f.tooMany(1) {
		t.Errorf("after %d attempts it gave up: in this term %t, in the next %t", maxRejoins, f.tooMany(0), f.tooMany(1))
	}
	for range maxRejoins - 1 {
		if f.tooMany(1) || f.failed == 0 {
			t.Fatalf("in the next term: %+v", f)
		}
		f.add(1)
	}
	if !f.tooMany(1) {
		t.Errorf("no limit in the next term: %+v", f)
	}
}
