// Package timeline implements the event queue of a simulated run, ordered by virtual time.
package timeline

// event is a scheduled call.
type event struct {
	at    int64
	order uint64
	call  func()
}

// Queue is a binary heap of events. Events with equal times are in the order of Put.
type Queue struct {
	heap  []event
	order uint64
}

// Len returns the number of events in the queue.
func (q *Queue) Len() int { return len(q.heap) }

// Next returns a number above all that it has returned. Of two events with the same time, the lower
// number comes first.
func (q *Queue) Next() uint64 {
	q.order++
	return q.order
}

func (q *Queue) less(i, j int) bool {
	a, b := &q.heap[i], &q.heap[j]
	return a.at < b.at || a.at == b.at && a.order < b.order
}

// Put schedules a call.
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

// Take removes the next event from a queue, which must not be empty.
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
