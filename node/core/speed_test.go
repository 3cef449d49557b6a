package core

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// drawSpeed returns the speed of a machine, as a level.
func drawSpeed(t *rapid.T, label string) float64 { return rapid.Float64Range(20, 200).Draw(t, label) }

// TestNoiseChangesNoOffer checks that the offer of a machine with a constant speed hardly ever changes
// although its measurements have a noise of 6 percent (uniform), and that it is near the speed.
func TestNoiseChangesNoOffer(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		actual, noise := drawSpeed(t, "speed"), rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var s speed
		offered, changes := uint8(0), 0
		for i := range 520 {
			s.add(actual + 8*math.Log2(1+0.06*math.Sqrt(3)*(2*noise.Float64()-1)))
			level := s.level(offered)
			if i >= 20 && level != offered {
				changes++
			}
			offered = level
			if off := float64(offered) + 0.5 - actual; i >= 20 && math.Abs(off) > 2 {
				t.Fatalf("offers level %d at speed %.2f", offered, actual)
			}
		}
		if changes > 6 {
			t.Errorf("%d changes in 500 trainings", changes)
		}
	})
}

// TestOfferFollowsSpeed checks that after any history three measurements of another speed determine the offer,
// and two if they are the lowest or the highest ones.
func TestOfferFollowsSpeed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s speed
		offered := uint8(0)
		for _, level := range rapid.SliceOfN(rapid.Float64Range(20, 200), 0, 10).Draw(t, "history") {
			s.add(level)
			offered = s.level(offered)
		}
		actual := drawSpeed(t, "speed")
		for range 3 {
			s.add(actual)
			offered = s.level(offered)
		}
		if off := math.Abs(s.mean - actual); off > otherLevel {
			t.Errorf("mean %.2f after three measurements of %.2f", s.mean, actual)
		}
		if off := float64(offered) + 0.5 - actual; math.Abs(off) > otherLevel+1 {
			t.Errorf("offers %d after three measurements of %.2f", offered, actual)
		}
	})
}

// TestSlowTrainingCounts checks that a training at a quarter of the usual speed lowers the offer at once, and
// that the next one at the usual speed restores it.
func TestSlowTrainingCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s speed
		actual := drawSpeed(t, "speed")
		for range 3 {
			s.add(actual)
		}
		usual := s.level(0)
		s.add(actual - 16)
		low := s.level(usual)
		if want := floorOf(actual - 16); low != want {
			t.Errorf("offers %d after a slow training, want %d", low, want)
		}
		s.add(actual)
		if again := s.level(low); again != usual {
			t.Errorf("offers %d after the next training, want %d", again, usual)
		}
	})
}

// TestOfferedLevelStays checks the hysteresis.
func TestOfferedLevelStays(t *testing.T) {
	for _, test := range []struct {
		mean          float64
		offered, want uint8
	}{
		{80, 0, 80}, {80.99, 0, 80},
		{79.5, 80, 80}, {79.4, 80, 79}, {81.4, 80, 80}, {81.5, 80, 81},
		{-3, 0, 1}, {300, 0, 255}, {300, 255, 255},
	} {
		s := speed{mean: test.mean, newest: []float64{test.mean}}
		if got := s.level(test.offered); got != test.want {
			t.Errorf("offers %d at %.2f after an offer of %d, want %d", got, test.mean, test.offered, test.want)
		}
	}
	if got := new(speed).level(80); got != 0 {
		t.Errorf("offers %d without a measurement", got)
	}
}

// TestLevelOfASpeed checks the unit of levels, and that times and numbers of any size give a level that can be
// offered.
func TestLevelOfASpeed(t *testing.T) {
	if got := levelOf(2048, 2*time.Second); got != 80 {
		t.Errorf("1024 tokens per second have the level %v, want 80", got)
	}
	rapid.Check(t, func(t *rapid.T) {
		tokens, took := rapid.IntRange(1, math.MaxInt32).Draw(t, "tokens"), rapid.Int64Range(0, math.MaxInt64).Draw(t, "time")
		if level := levelOf(float64(tokens), time.Duration(took)); math.IsNaN(level) || floorOf(level) == 0 {
			t.Errorf("level %v", level)
		}
	})
}

// TestFirstMeasurementsAreEqual checks that the first measurement does not dominate the mean.
func TestFirstMeasurementsAreEqual(t *testing.T) {
	var s speed
	s.guess(60)
	for _, level := range []float64{81, 79, 80, 78} {
		s.add(level)
	}
	if s.mean != 79.5 {
		t.Errorf("the mean is %v, want 79.5", s.mean)
	}
}
