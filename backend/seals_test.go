package backend_test

import (
	"slices"
	"testing"

	"github.com/psyche-go/psyche/backend"
	"github.com/psyche-go/psyche/coordinator"
)

// TestSealsOfTheNewestRounds are kept, those of older ones given up; what somebody reads does not change.
func TestSealsOfTheNewestRounds(t *testing.T) {
	var seals []backend.Seal
	var shown [][]backend.Seal
	for step := uint32(1); step <= 40; step++ {
		for verifier := range byte(3) {
			shown = append(shown, seals)
			before := slices.Clone(seals)
			seals = backend.AddSeal(seals, coordinator.ClientID{verifier}, coordinator.SealVerdict{Step: step, Seal: [32]byte{byte(step), verifier}})
			if !slices.Equal(before, shown[len(shown)-1]) {
				t.Fatal("what was shown has changed")
			}
		}
		seals = backend.AddSeal(seals, coordinator.ClientID{9}, coordinator.Verdict{Step: step})
		if newest := seals[len(seals)-1]; newest != (backend.Seal{Step: step, Verifier: coordinator.ClientID{2}, Hash: [32]byte{byte(step), 2}}) {
			t.Fatalf("newest after step %d: %+v", step, newest)
		}
		if want := 3 * min(int(step), backend.SealRounds); len(seals) != want {
			t.Fatalf("%d seals after step %d, want %d", len(seals), step, want)
		}
	}
	if seals[0].Step != 40-backend.SealRounds+1 {
		t.Errorf("the oldest is of step %d", seals[0].Step)
	}
}
