package distro

import (
	"math/bits"

	"github.com/psyche-go/psyche/core/codec"
)

// Rates returns the step of a chunk for each number of results, from 0 to counted, that sent
// something in the chunk: LR times the fraction of the counted results. A result that alone sends
// something in a chunk moves the chunk no more than one of many results does. Otherwise a single
// member could steer the weights wherever no other member has a gradient. Each operation is rounded
// once, so the numbers are the same on every machine.
func (p ApplyParams) Rates(counted int) []float32 {
	rates := make([]float32, counted+1)
	for speakers := 1; speakers <= counted; speakers++ {
		rates[speakers] = p.LR * share(speakers, counted)
	}
	return rates
}

// share returns the fraction of the rate that moves a chunk if the given number of counted results
// sent something in it.
func share(speakers, counted int) float32 {
	return float32(speakers) / float32(counted)
}

// merger averages the coefficients of several results, chunk by chunk.
type merger struct {
	results []codec.TensorResult
	rates   []float32 // indexed by the number of results that sent something in a chunk
	stride  []int     // entries per chunk of each result
	sums    []float32 // indexed by coefficient of a chunk; valid only if touched
	senders []int32
	touched []uint64 // bit set of the coefficients that some result contains
	merged  entries
}

func newMerger(l Layout, results []codec.TensorResult, rates []float32) *merger {
	m := &merger{
		results: results,
		rates:   rates,
		sums:    make([]float32, l.ChunkSize()),
		senders: make([]int32, l.ChunkSize()),
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
		m.merged.rates = append(m.merged.rates, m.rates[m.sum(c)])
		m.mean()
		m.merged.offsets = append(m.merged.offsets, int32(len(m.merged.indices)))
	}
	return m.merged
}

// sum adds the coefficients of chunk c in the order of the results. It returns the number of
// results that sent something in the chunk.
func (m *merger) sum(c int) (speakers int) {
	for i, r := range m.results {
		at := c * m.stride[i]
		if r.Counts[c] > 0 {
			speakers++
		}
		indices := r.Indices[at:][:r.Counts[c]]
		values := r.Values[at:][:len(indices)]
		for j, index := range indices {
			word, bit := index/64, uint64(1)<<(index%64)
			if m.touched[word]&bit == 0 {
				m.touched[word] |= bit
				m.sums[index], m.senders[index] = values[j], 1
				continue
			}
			m.sums[index] += values[j]
			m.senders[index]++
		}
	}
	return speakers
}

// mean appends the means in ascending order of index. Each mean is one division, by the number of
// results that contain the coefficient, not by the number of all results. Sums of signs are exact
// integers.
func (m *merger) mean() {
	for word, set := range m.touched {
		for ; set != 0; set &= set - 1 {
			index := word*64 + bits.TrailingZeros64(set)
			m.merged.indices = append(m.merged.indices, uint16(index))
			m.merged.values = append(m.merged.values, m.sums[index]/float32(m.senders[index]))
		}
		m.touched[word] = 0
	}
}
