package generate

import (
	"errors"
	"math"
	"slices"
	"testing"
)

// TestDrawnShares checks that the draws have the proportions that the options leave.
func TestDrawnShares(t *testing.T) {
	p := []float64{0.1, 0.4, 0.2, 0.3}
	tests := []struct {
		name   string
		change func(o *Options)
		want   []float64
	}{
		{"all", func(*Options) {}, p},
		{"top-k", func(o *Options) { o.TopK = 2 }, []float64{0, 4. / 7, 0, 3. / 7}},
		{"top-p", func(o *Options) { o.TopP = 0.69 }, []float64{0, 4. / 7, 0, 3. / 7}},
		{"top-p takes the one that fills it", func(o *Options) { o.TopP = 0.71 }, []float64{0, 4. / 9, 2. / 9, 3. / 9}},
		{"top-k before top-p", func(o *Options) { o.TopK, o.TopP = 2, 0.5 }, []float64{0, 1, 0, 0}},
		{"temperature", func(o *Options) { o.Temperature = 0.5 }, []float64{1. / 30, 16. / 30, 4. / 30, 9. / 30}},
	}
	for _, test := range tests {
		o := Options{MaxTokens: 1, Temperature: 1, TopP: 1, RepetitionPenalty: 1, Seed: 3}
		test.change(&o)
		s, counts := newSampler(o), make([]float64, len(p))
		const draws = 20_000
		for range draws {
			logits := make([]float32, len(p))
			for i, share := range p {
				logits[i] = float32(math.Log(share)) + 7
			}
			id, err := s.next(logits, nil)
			if err != nil {
				t.Fatal(err)
			}
			counts[id] += 1. / draws
		}
		for i := range counts {
			if math.Abs(counts[i]-test.want[i]) > 0.015 || test.want[i] == 0 && counts[i] > 0 {
				t.Errorf("%s: shares %v, want %v", test.name, counts, test.want)
				break
			}
		}
	}
}

func TestPenalty(t *testing.T) {
	s := newSampler(Options{TopP: 1, RepetitionPenalty: 2})
	logits := []float32{4, -4, 1, 0}
	s.penalise(logits, []int32{0, 0, 1, 9})
	if !slices.Equal(logits, []float32{2, -8, 1, 0}) {
		t.Errorf("penalised: %v", logits)
	}
}

func TestLogitsThatAreNotFinite(t *testing.T) {
	s := newSampler(Options{TopP: 1, RepetitionPenalty: 1})
	for _, bad := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if _, err := s.next([]float32{1, float32(bad)}, nil); !errors.Is(err, errNotFinite) {
			t.Errorf("%v: error %v", bad, err)
		}
	}
}
