package experts

import (
	"math"

	"github.com/psyche-go/psyche/learn/model/hfconfig"
)

// Router chooses the experts of a token.
type Router struct {
	Experts, Groups, TopGroups, Chosen int
	// Pairs scores a group by the sum of its two best experts (DeepSeek-V3), instead of by its best
	// one.
	Pairs bool
}

// Check fails p if the router's sizes are inconsistent. Errors use the field names of config.json.
func (r Router) Check(p *hfconfig.Checker) {
	if p.Err() != nil {
		return
	}
	size := r.Experts / r.Groups // of a group
	switch {
	case r.Experts%r.Groups != 0:
		p.Fail("n_routed_experts %d is not a multiple of n_group %d", r.Experts, r.Groups)
	case r.TopGroups > r.Groups:
		p.Fail("topk_group %d is more than n_group %d", r.TopGroups, r.Groups)
	case r.Chosen > r.TopGroups*size:
		p.Fail("num_experts_per_tok %d is more than the %d experts of topk_group %d groups", r.Chosen, r.TopGroups*size, r.TopGroups)
	case r.Pairs && size < 2:
		p.Fail("n_group %d leaves 1 expert per group, want at least 2: the score of a group is the sum of two", r.Groups)
	}
}

// Choose writes the experts of each token to out [tokens,chosen], best first. scores is
// [tokens,experts] and not changed; correction, if not nil, is added to each token's scores. Among
// equal scores the lower index wins. NaN is the worst score.
func (r Router) Choose(scores, correction []float32, out []int64) {
	token, group := newRanking(r.Experts), newRanking(r.Groups)
	size := r.Experts / r.Groups
	for ; len(scores) > 0; scores, out = scores[r.Experts:], out[r.Chosen:] {
		token.reset()
		for i, score := range scores[:r.Experts] {
			if correction != nil {
				score += correction[i]
			}
			token.scores[i] = score
		}
		if r.TopGroups < r.Groups {
			group.reset()
			for g := range r.Groups {
				group.scores[g] = r.groupScore(token.scores[g*size : (g+1)*size])
			}
			for range r.TopGroups {
				group.take()
			}
			for i := range token.gone {
				token.gone[i] = !group.gone[i/size]
			}
		}
		for i := range r.Chosen {
			out[i] = int64(token.take())
		}
	}
}

func (r Router) groupScore(scores []float32) float32 {
	first, second := float32(math.Inf(-1)), float32(math.Inf(-1))
	for _, score := range scores {
		switch {
		case score > first:
			first, second = score, first
		case score > second:
			second = score
		}
	}
	if r.Pairs {
		return first + second
	}
	return first
}

// ranking returns indices in descending order of their scores.
type ranking struct {
	scores []float32
	gone   []bool // already returned, or not allowed
}

func newRanking(n int) ranking { return ranking{make([]float32, n), make([]bool, n)} }

func (r ranking) reset() { clear(r.gone) }

// take returns the best remaining index; there must be one.
func (r ranking) take() int {
	best := -1
	for i, score := range r.scores {
		if !r.gone[i] && (best < 0 || score > r.scores[best] || isNaN(r.scores[best]) && !isNaN(score)) {
			best = i
		}
	}
	r.gone[best] = true
	return best
}

// dispatch is the order in which experts get their tokens: all of expert 0, all of 1, …
type dispatch struct {
	rows   []int64 // token of each slot, [tokens·chosen]
	back   []int64 // slot of each choice, in the order of Choose's out
	counts []int64 // number of slots of each expert
}

// newDispatch sorts the choices [tokens,chosen] by expert, keeping the order of tokens.
func newDispatch(choices []int64, chosen, experts int) dispatch {
	d := dispatch{rows: make([]int64, len(choices)), back: make([]int64, len(choices)), counts: make([]int64, experts)}
	for _, expert := range choices {
		d.counts[expert]++
	}
	next, first := make([]int64, experts), int64(0)
	for expert, count := range d.counts {
		next[expert], first = first, first+count
	}
	for i, expert := range choices {
		place := next[expert]
		next[expert]++
		d.rows[place], d.back[i] = int64(i/chosen), place
	}
	return d
}

// Loads returns, for each of a number of sequences of equal length, the fraction of its choices
// that each expert has, times the number of experts: [sequences,experts]. All values are 1 if all
// experts are used equally.
func Loads(choices []int64, sequences, experts int) []float32 {
	out := make([]float32, sequences*experts)
	length := len(choices) / sequences
	for i, expert := range choices {
		out[i/length*experts+int(expert)]++
	}
	for i := range out {
		out[i] *= float32(experts) / float32(length)
	}
	return out
}

func isNaN(v float32) bool { return math.IsNaN(float64(v)) }
