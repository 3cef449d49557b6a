package remote

// Progress is how far a transfer is, in bytes.
type Progress func(done, all int64)

// InParts returns a Progress that tells of a transfer when it begins and, once each, of its
// fiftieths: 51 times at most, however often what moves goes back and comes again.
func InParts(told func(done, all int64)) Progress {
	const parts = 50
	last := int64(-1)
	return func(done, all int64) {
		done = min(done, all)
		if part := parts * done / max(all, 1); all > 0 && part > last {
			last = part
			told(done, all)
		}
	}
}
