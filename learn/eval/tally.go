package eval

import "math"

// Tally adds answers up.
type Tally struct {
	Questions int
	sums      map[string]float64
}

// Add counts an answer.
func (t *Tally) Add(a Answer) {
	if t.sums == nil {
		t.sums = map[string]float64{}
	}
	t.Questions++
	for name, score := range a.Scores {
		t.sums[name] += score
	}
}

// Scores returns the mean of each of the named scores.
func (t *Tally) Scores(names []string) map[string]float64 {
	means := make(map[string]float64, len(names))
	for _, name := range names {
		if t.Questions > 0 {
			means[name] = t.sums[name] / float64(t.Questions)
		}
	}
	return means
}

// Error is the standard error of a mean of answers that are right or wrong.
func (t *Tally) Error(name string) float64 {
	if t.Questions < 2 {
		return 0
	}
	p := t.sums[name] / float64(t.Questions)
	return math.Sqrt(p * (1 - p) / float64(t.Questions-1))
}
