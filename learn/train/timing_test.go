package train

import (
	"slices"
	"testing"
)

func TestTimedParts(t *testing.T) {
	requireTorch(t)
	var seen []Timing
	trainer := newTestTrainer(t, func(o *Options) { o.Timed = func(t Timing) { seen = append(seen, t) } })
	if _, err := trainer.Step(t.Context(), 3, toyBatch(0, 2)); err != nil {
		t.Fatal(err)
	}
	var parts []string
	for _, timing := range seen {
		parts = append(parts, timing.Part)
		if timing.Step != 3 || timing.Took <= 0 {
			t.Errorf("%+v: want step 3 and a time", timing)
		}
	}
	if want := []string{partGradient, partEncode, partDecode}; !slices.Equal(parts, want) {
		t.Errorf("parts %v, want %v", parts, want)
	}
}
