package distro

// The transforms below are the specification of the order of operations. float32(...) around a
// product prevents the compiler from fusing it with the following sum.

// forward replaces the n values of x by their orthonormal DCT-II,
// X[k] = c(k)·Σ x[i]·cos(π(2i+1)k/2n). scratch holds n values.
func (t *cosineTable) forward(x, scratch []float32) {
	n := t.n
	if !t.fast {
		for k := range n {
			sum := float32(0)
			for i, b := range t.basis[k*padded(n):][:n] {
				sum += float32(b * x[i])
			}
			scratch[k] = sum
		}
		copy(x[:n], scratch[:n])
		return
	}
	leeForward(x[:n], scratch[:n])
	x[0] = float32(x[0] * t.mean)
	for k := 1; k < n; k++ {
		x[k] = float32(x[k] * t.scale)
	}
}

// inverse replaces the n coefficients in x by the values that have these coefficients as
// orthonormal DCT-II. scratch holds n values.
func (t *cosineTable) inverse(x, scratch []float32) {
	n := t.n
	if !t.fast {
		clear(scratch[:n])
		for k := range n {
			for i, b := range t.basis[k*padded(n):][:n] {
				scratch[i] += float32(b * x[k])
			}
		}
		copy(x[:n], scratch[:n])
		return
	}
	x[0] = float32(x[0] * t.mean)
	for k := 1; k < n; k++ {
		x[k] = float32(x[k] * t.scale)
	}
	leeInverse(x[:n], scratch[:n])
}

// leeForward is the unnormalised DCT-II of a power of two of points by Lee's recursion (B. G. Lee,
// IEEE Trans. ASSP 32, 1984). The even coefficients are the DCT of the folded half. The odd
// coefficients are sums of neighbours in the DCT of the other half, which was first divided by
// cosines.
func leeForward(x, t []float32) {
	n := len(x)
	if n == 1 {
		return
	}
	h := n / 2
	secant := secants()[h:n]
	for i := range h {
		a, b := x[i], x[n-1-i]
		t[i] = a + b
		t[h+i] = float32((a - b) * secant[i])
	}
	leeForward(t[:h], x[:h])
	leeForward(t[h:], x[h:])
	for i := range h - 1 {
		x[2*i] = t[i]
		x[2*i+1] = t[h+i] + t[h+i+1]
	}
	x[n-2], x[n-1] = t[h-1], t[n-1]
}

// leeInverse is the transpose of leeForward: the same steps backwards.
func leeInverse(x, t []float32) {
	n := len(x)
	if n == 1 {
		return
	}
	h := n / 2
	secant := secants()[h:n]
	t[0], t[h] = x[0], x[1]
	for i := 1; i < h; i++ {
		t[i] = x[2*i]
		t[h+i] = x[2*i-1] + x[2*i+1]
	}
	leeInverse(t[:h], x[:h])
	leeInverse(t[h:], x[h:])
	for i := range h {
		a, b := t[i], float32(t[h+i]*secant[i])
		x[i], x[n-1-i] = a+b, a-b
	}
}
