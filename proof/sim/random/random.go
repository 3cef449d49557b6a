// Package random generates the random numbers that a seed determines.
package random

// Source is the splitmix64 generator (Steele, Lea, Flood 2014). It generates everything that a seed
// determines. Every purpose has its own Source, so that leaving out one kind of fault does not
// change the others.
type Source struct{ state uint64 }

// New returns the generator of a seed for a purpose.
func New(seed uint64, purpose string) *Source {
	r := &Source{state: seed}
	for _, b := range []byte(purpose) {
		r.state = r.Next() ^ uint64(b)
	}
	return r
}

// Next returns the next number.
func (r *Source) Next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// Below returns a number from 0 to n−1; n is at least 1.
func (r *Source) Below(n int) int { return int(r.Next() % uint64(n)) }

// Between returns a number from low to high.
func (r *Source) Between(low, high int64) int64 { return low + int64(r.Next()%uint64(high-low+1)) }

// Chance returns true with a probability of perMille/1000.
func (r *Source) Chance(perMille int) bool { return perMille > 0 && r.Below(1000) < perMille }

// Pick returns count different numbers from 0 to n−1 in random order.
func (r *Source) Pick(n, count int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	count = min(count, n)
	for i := range count {
		j := i + r.Below(n-i)
		all[i], all[j] = all[j], all[i]
	}
	return all[:count]
}

// One returns one of the values.
func One[T any](r *Source, values ...T) T { return values[r.Below(len(values))] }
