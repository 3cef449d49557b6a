// Package timeline is the queue of what happens in a simulated run, by its virtual time.
package timeline

// event is a call at a time.
type event struct {
	at    int64
	order uint64
	call  func()
}

// Queue is a binary heap; of equal times the event that was put first comes first.
type Queue struct {
	heap  []event
	order uint64
}

// Len returns how many events are to come.
func (q *Queue) Len() int { return len(q.heap) }

// Next returns a number above all that it has returned: what has the lower one of two comes first.
func (q *Queue) Next() uint64 {
	q.order++
	return q.order
}

func (q *Queue) less(i, j int) bool {
	a, b := &q.heap[i], &q.heap[j]
	return a.at < b.at || a.at == b.at && a.order < b.order
}

// Put lets something happen at a time.
func (q *Queue) Put(at int64, call func()) {
	q.heap = append(q.heap, event{at, q.Next(), call})
	for i := len(q.heap) - 1; i > 0; {
		parent := (i - 1) / 2
		if !q.less(i, parent) {
			break
		}
		q.heap[i], q.heap[parent] = q.heap[parent], q.heap[i]
		i = parent
	}
}

// Take removes what happens first, of a queue that is not empty.
func (q *Queue) Take() (at int64, call func()) {
	first := q.heap[0]
	last := len(q.heap) - 1
	q.heap[0] = q.heap[last]
	q.heap[last] = event{}
	q.heap = q.heap[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			break
		}
		if child+1 < last && q.less(child+1, child) {
			child++
		}
		if !q.less(child, i) {
			break
		}
		q.heap[i], q.heap[child] = q.heap[child], q.heap[i]
		i = child
	}
	return first.at, first.call
}
