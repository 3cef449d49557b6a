package sim

// random is the splitmix64 generator (Steele, Lea, Flood 2014). Everything that a seed
// decides comes from one; every purpose has its own, so that leaving one kind of fault
// out does not change the others.
type random struct{ state uint64 }

// newRandom returns the generator of a seed for a purpose.
func newRandom(seed uint64, purpose string) *random {
	r := &random{state: seed}
	for _, b := range []byte(purpose) {
		r.state = r.next() ^ uint64(b)
	}
	return r
}

func (r *random) next() uint64 {
	r.state += 0x9e3779b97f4a7c15
	z := r.state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// below returns a number of 0…n−1; n is at least 1.
func (r *random) below(n int) int { return int(r.next() % uint64(n)) }

// between returns a number of low…high.
func (r *random) between(low, high int64) int64 { return low + int64(r.next()%uint64(high-low+1)) }

// chance is true in so many of a thousand cases.
func (r *random) chance(perMille int) bool { return perMille > 0 && r.below(1000) < perMille }

// pick returns count different numbers of 0…n−1 in random order.
func (r *random) pick(n, count int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	count = min(count, n)
	for i := range count {
		j := i + r.below(n-i)
		all[i], all[j] = all[j], all[i]
	}
	return all[:count]
}

// one returns one of the values.
func one[T any](r *random, values ...T) T { return values[r.below(len(values))] }
