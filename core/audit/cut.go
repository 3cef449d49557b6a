package audit

import "fmt"

// maxElements bounds a tensor so that offsets and sizes in bytes fit into an int.
const maxElements = 1 << 40

// Cut returns how a tensor of the given shape is cut into chunks. Its last two dimensions are cut
// into blocks. The side of a block is the dimension itself if it is at most edge, else its largest
// divisor that is at most edge. At most k coefficients of each chunk are sent.
func Cut(shape []int64, edge, k int) (Shape, error) {
	if edge < 1 || edge > maxEdge || k < 1 {
		return Shape{}, fmt.Errorf("%w: chunks of %d with %d sent coefficients: want 1 to %d, and at least 1", ErrInvalid, edge, k, maxEdge)
	}
	elements, cols, height := int64(1), int64(1), int64(1)
	for i, n := range shape {
		if n < 1 || n > maxElements/elements {
			return Shape{}, fmt.Errorf("%w: a tensor of shape %v", ErrInvalid, shape)
		}
		elements *= n
		switch len(shape) - i {
		case 1:
			cols = n
		case 2:
			height = n
		}
	}
	s := Shape{Rows: divisor(height, edge), Cols: divisor(cols, edge)}
	s.Chunks, s.K = int(elements/int64(s.size())), min(k, s.size())
	return s, nil
}

// divisor returns the largest divisor of n that is at most limit.
func divisor(n int64, limit int) int {
	if n <= int64(limit) {
		return int(n)
	}
	for edge := limit; edge > 1; edge-- {
		if n%int64(edge) == 0 {
			return edge
		}
	}
	return 1
}
