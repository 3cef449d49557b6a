package eval

import (
	"maps"
	"math"
	"slices"
)

// Tally accumulates the scores of answers.
type Tally struct {
	Questions int
	subjects  map[string]*sums
}

// sums contains the sums of one subject's answers.
type sums struct {
	questions int
	scores    map[string]float64
}

// Add counts the answer to a question.
func (t *Tally) Add(q Question, a Answer) {
	if t.subjects == nil {
		t.subjects = map[string]*sums{}
	}
	own := t.subjects[q.Subject]
	if own == nil {
		own = &sums{scores: map[string]float64{}}
		t.subjects[q.Subject] = own
	}
	t.Questions++
	own.questions++
	for name, score := range a.Scores {
		own.scores[name] += score
	}
}

// Scores returns the mean of each of the named scores.
func (t *Tally) Scores(names []string) map[string]float64 {
	means := make(map[string]float64, len(names))
	for _, name := range names {
		if t.Questions > 0 {
			means[name] = t.sum(name) / float64(t.Questions)
		}
	}
	return means
}

// sum adds up scores, which are 0 or 1, so that the order does not matter.
func (t *Tally) sum(name string) (sum float64) {
	for _, own := range t.subjects {
		sum += own.scores[name]
	}
	return sum
}

// Error returns the standard error of a mean of right or wrong answers. The variance is pooled over
// the subjects, each around its own mean. If each subject has only one question, and so no
// variance, it is the variance of the whole sample.
func (t *Tally) Error(name string) float64 {
	if t.Questions < 2 {
		return 0
	}
	all := float64(t.Questions)
	squares := func(questions, sum float64) float64 { return sum * (1 - sum/questions) }
	if len(t.subjects) == t.Questions {
		return math.Sqrt(squares(all, t.sum(name)) / (all - 1) / all)
	}
	within := 0.0
	for _, subject := range slices.Sorted(maps.Keys(t.subjects)) { // the last bits depend on the order
		own := t.subjects[subject]
		within += squares(float64(own.questions), own.scores[name])
	}
	return math.Sqrt(within / (all - float64(len(t.subjects))) / all)
}
