package core

import (
	"testing"
	"time"
)

// TestStepBeforeAdvance checks that no event can follow before the effects of the previous one are
// executed.
func TestStepBeforeAdvance(t *testing.T) {
	m := New(Options{})
	panics := func(do func()) (is bool) {
		defer func() { is = recover() != nil }()
		do()
		return false
	}
	if !panics(m.Advance) {
		t.Error("Advance before Ready is possible")
	}
	m.Ready()
	if !panics(func() { m.Step(time.Time{}, Lost{}) }) {
		t.Error("Step between Ready and Advance is possible")
	}
	m.Advance()
	m.Step(time.Time{}, Lost{})
}
