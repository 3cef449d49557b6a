package remote

// Progress is called with the progress of a transfer in bytes.
type Progress func(done, all int64)

// InParts returns a Progress that calls report at most 51 times: at the start of a transfer, and
// after each fiftieth of it. The transfer may repeat parts.
func InParts(report func(done, all int64)) Progress {
	const parts = 50
	last := int64(-1)
	return func(done, all int64) {
		done = min(done, all)
		if part := parts * done / max(all, 1); all > 0 && part > last {
			last = part
			report(done, all)
		}
	}
}
