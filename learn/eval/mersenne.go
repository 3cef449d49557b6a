package eval

import (
	"math"
	"math/bits"
)

// mersenne is the generator MT19937 (Matsumoto and Nishimura, 1998) as in Python's random. The same
// generator is needed to draw the same examples, so that measurements are comparable.
type mersenne struct {
	state [624]uint32
	next  int
}

// newMersenne returns a generator with a seed, as init_by_array initializes it from the seed's
// words.
func newMersenne(seed uint64) *mersenne {
	words := []uint32{uint32(seed)}
	if seed > math.MaxUint32 {
		words = append(words, uint32(seed>>32))
	}
	m := &mersenne{}
	s := &m.state
	s[0] = 19650218
	for i := 1; i < len(s); i++ {
		s[i] = 1812433253*(s[i-1]^s[i-1]>>30) + uint32(i)
	}
	i, j := 1, 0
	step := func() {
		if i++; i == len(s) {
			s[0], i = s[len(s)-1], 1
		}
	}
	for range len(s) {
		s[i] = (s[i] ^ (s[i-1]^s[i-1]>>30)*1664525) + words[j] + uint32(j)
		step()
		j = (j + 1) % len(words)
	}
	for range len(s) - 1 {
		s[i] = (s[i] ^ (s[i-1]^s[i-1]>>30)*1566083941) - uint32(i)
		step()
	}
	s[0] = 1 << 31
	m.next = len(s)
	return m
}

func (m *mersenne) uint32() uint32 {
	s := &m.state
	if m.next == len(s) {
		for i := range s {
			y := s[i]&(1<<31) | s[(i+1)%len(s)]&(1<<31-1)
			s[i] = s[(i+397)%len(s)] ^ y>>1 ^ y&1*0x9908b0df
		}
		m.next = 0
	}
	y := s[m.next]
	m.next++
	y ^= y >> 11
	y ^= y << 7 & 0x9d2c5680
	y ^= y << 15 & 0xefc60000
	return y ^ y>>18
}

// below draws a number from 0 to n−1. n must be at least 1.
func (m *mersenne) below(n int) int {
	width := bits.Len32(uint32(n))
	for {
		if r := int(m.uint32() >> (32 - width)); r < n {
			return r
		}
	}
}

// sample draws k different numbers below n, in the order of random.sample.
func (m *mersenne) sample(n, k int) []int {
	out := make([]int, k)
	small := 21.0
	if k > 5 {
		small += math.Pow(4, math.Ceil(math.Log(float64(3*k))/math.Log(4)))
	}
	if float64(n) > small {
		seen := map[int]bool{}
		for i := range out {
			j := m.below(n)
			for seen[j] {
				j = m.below(n)
			}
			seen[j], out[i] = true, j
		}
		return out
	}
	pool := make([]int, n)
	for i := range pool {
		pool[i] = i
	}
	for i := range out {
		j := m.below(n - i)
		out[i], pool[j] = pool[j], pool[n-i-1]
	}
	return out
}
