package eval_test

import (
	"math"
	"testing"

	"github.com/psyche-go/psyche/learn/eval"
)

// TestErrorsOfScores compares standard errors with the errors that lm_eval 0.4.13 computes: for one
// sample, and for a task of several subjects, which are separate tasks in lm_eval
// (pooled_sample_stderr of their errors).
func TestErrorsOfScores(t *testing.T) {
	type part struct{ right, of int }
	tests := map[string]struct {
		parts []part // one per subject
		want  float64
	}{
		"one sample":         {[]part{{14, 21}}, 0.10540925533894599},
		"equal subjects":     {[]part{{3, 7}, {5, 7}, {6, 7}}, 0.10286889997472794},
		"unequal subjects":   {[]part{{1, 2}, {9, 10}, {0, 5}}, 0.07669649888473705},
		"all right":          {[]part{{4, 4}, {2, 2}}, 0},
		"one question each":  {[]part{{1, 1}, {0, 1}}, 0.5}, // none there: like one sample
		"one question":       {[]part{{1, 1}}, 0},
		"one of one subject": {[]part{{1, 1}, {1, 2}}, math.Sqrt(0.5 / 3)},
		"no question":        {nil, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var tally eval.Tally
			for subject, part := range test.parts {
				for i := range part.of {
					score := 0.0
					if i < part.right {
						score = 1
					}
					tally.Add(eval.Question{Subject: string(rune('a' + subject))}, eval.Answer{Scores: map[string]float64{"acc": score}})
				}
			}
			if got := tally.Error("acc"); math.Abs(got-test.want) > 1e-12 {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
