package distro

import (
	"math/bits"

	"github.com/psyche-go/psyche/core/codec"
)

// rate returns the step of a chunk: LR times the share of the votes of the results that sent something in
// the chunk among the votes of all results. A result that alone sends something in a chunk moves the
// chunk no more than one of many results does. Otherwise a single member could steer the weights
// wherever no other member has a gradient. Each operation is rounded once, so the number is the same on
// every machine.
func (p ApplyParams) rate(sent, counted int) float32 {
	return p.LR * (float32(sent) / float32(max(counted, 1)))
}

// merger averages the coefficients of several results, chunk by chunk.
type merger struct {
	results []codec.TensorResult
	params  ApplyParams
	counted int       // sum of the votes of the results
	stride  []int     // entries per chunk of each result
	sums    []float32 // indexed by coefficient of a chunk; valid only if touched
	votes   []int32   // of the results that contain the coefficient
	touched []uint64  // bit set of the coefficients that some result contains
	merged  entries
}

func newMerger(l Layout, results []codec.TensorResult, p ApplyParams) *merger {
	m := &merger{
		results: results,
		params:  p,
		counted: p.Votes.Sum(len(results)),
		sums:    make([]float32, l.ChunkSize()),
		votes:   make([]int32, l.ChunkSize()),
		touched: make([]uint64, (l.ChunkSize()+63)/64),
	}
	for _, r := range results {
		m.stride = append(m.stride, len(r.Indices)/l.Chunks())
	}
	return m
}

// chunks returns the means of the chunks first … last−1. The entries are valid until the next call.
func (m *merger) chunks(first, last int) entries {
	m.merged.offsets = append(m.merged.offsets[:0], 0)
	m.merged.rates = m.merged.rates[:0]
	m.merged.indices = m.merged.indices[:0]
	m.merged.values = m.merged.values[:0]
	for c := first; c < last; c++ {
		m.merged.rates = append(m.merged.rates, m.params.rate(m.sum(c), m.counted))
		m.mean()
		m.merged.offsets = append(m.merged.offsets, int32(len(m.merged.indices)))
	}
	return m.merged
}

// sum adds the coefficients of chunk c, times the weights of their votes, in the order of the results. It
// returns the votes of the results that sent something in the chunk.
func (m *merger) sum(c int) (sent int) {
	for i, r := range m.results {
		if r.Counts[c] == 0 {
			continue
		}
		vote := m.params.Votes.Of(i)
		weight := Weight(vote)
		sent += vote
		indices := r.Indices[c*m.stride[i]:][:r.Counts[c]]
		values := r.Values[c*m.stride[i]:][:len(indices)]
		for j, index := range indices {
			word, bit := index/64, uint64(1)<<(index%64)
			value := float32(values[j] * weight)
			if m.touched[word]&bit == 0 {
				m.touched[word] |= bit
				m.sums[index], m.votes[index] = value, int32(vote)
				continue
			}
			m.sums[index] += value
			m.votes[index] += int32(vote)
		}
	}
	return sent
}

// mean appends the means in ascending order of index. Each mean is one division, by the votes of the
// results that contain the coefficient, not by the votes of all results. Sums of signs are exact:
// multiples of the weight of the smallest vote.
func (m *merger) mean() {
	for word, set := range m.touched {
		for ; set != 0; set &= set - 1 {
			index := word*64 + bits.TrailingZeros64(set)
			m.merged.indices = append(m.merged.indices, uint16(index))
			m.merged.values = append(m.merged.values, m.sums[index]/Weight(int(m.votes[index])))
		}
		m.touched[word] = 0
	}
}
