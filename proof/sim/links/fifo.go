package links

import (
	"slices"

	"github.com/psyche-go/psyche/proof/sim/random"
)

const (
	packet = 1500 // bytes
	// pieces is the maximum number of parts in a full buffer. Larger parts need fewer events.
	pieces = 32
)

// fifo is a link with one buffer for all transfers.
type fifo struct {
	clock   Clock
	rate    int64
	buffer  int64   // nanoseconds
	waiting []*job  // jobs with bytes outside the buffer, in order of arrival
	pieces  []piece // in the buffer
	held    int64   // bytes in the buffer
	began   int64   // start of the newest part of the first piece
	first   int64   // bytes of the first piece at that time
	random  *random.Source
	alarm   uint64
}

// piece is some bytes of one job.
type piece struct {
	job   *job // nil: it was aborted
	bytes int64
}

func newFIFO(clock Clock, line Line, number uint64) *fifo {
	return &fifo{clock: clock, rate: max(line.Rate, 1), buffer: line.Buffer, random: random.New(number, "fifo")}
}

// room returns the capacity of the buffer, and the size of a piece, in bytes.
func (f *fifo) room() (all, of int64) {
	all = max(mulDiv(f.rate, f.buffer, 1_000_000_000, 0), 4*packet)
	return all, max(all/pieces, packet)
}

func (f *fifo) add(j *job) {
	f.waiting = append(f.waiting, j)
	f.fill()
}

// remove removes a job, but leaves its bytes in the buffer, because the sender cannot take them
// back.
func (f *fifo) remove(j *job) {
	if i := slices.Index(f.waiting, j); i >= 0 {
		f.waiting = slices.Delete(f.waiting, i, i+1)
	}
	for i := range f.pieces {
		if f.pieces[i].job == j {
			f.pieces[i].job = nil
		}
	}
}

func (f *fifo) setRate(bytesPerSecond int64) {
	if len(f.pieces) > 0 { // the rest of the first piece leaves at the new rate
		left := f.first - min(amount(f.clock.Now()-f.began, 1, f.rate)/micro, f.first-1)
		f.rate = max(bytesPerSecond, 1)
		f.sendFirst(left)
	}
	f.rate = max(bytesPerSecond, 1)
	f.fill()
}

// fill moves bytes of waiting jobs into the buffer while there is room. It draws the next job,
// because packets of many connections arrive in a random order.
func (f *fifo) fill() {
	all, limit := f.room()
	idle := len(f.pieces) == 0
	for f.held < all && len(f.waiting) > 0 {
		i := f.next()
		j := f.waiting[i]
		left := j.left/micro - j.queued
		bytes := min(left, limit)
		f.pieces = append(f.pieces, piece{j, bytes})
		f.held += bytes
		j.queued += bytes
		if bytes == left {
			f.waiting = slices.Delete(f.waiting, i, i+1)
		}
	}
	if idle && len(f.pieces) > 0 {
		f.sendFirst(f.pieces[0].bytes)
	}
}

// next draws a waiting job. While other messages wait too, it draws a bulk job once in bulkShare draws on average.
func (f *fifo) next() int {
	if len(f.waiting) == 1 {
		return 0
	}
	bulk := 0
	for _, j := range f.waiting {
		if j.bulk {
			bulk++
		}
	}
	if bulk == 0 || bulk == len(f.waiting) {
		return f.random.Below(len(f.waiting))
	}
	wanted, count := f.random.Below(bulkShare) == 0, bulk
	if !wanted {
		count = len(f.waiting) - bulk
	}
	skip := f.random.Below(count)
	for i, j := range f.waiting {
		if j.bulk != wanted {
			continue
		}
		if skip == 0 {
			return i
		}
		skip--
	}
	return 0
}

// sendFirst sends the last bytes of the first piece.
func (f *fifo) sendFirst(bytes int64) {
	f.began, f.first = f.clock.Now(), bytes
	f.alarm++
	alarm := f.alarm
	f.clock.At(f.began+nanoseconds(bytes*micro, 1, f.rate), func() {
		if f.alarm == alarm {
			f.sent()
		}
	})
}

// sent processes the end of the first piece.
func (f *fifo) sent() {
	first := f.pieces[0]
	f.pieces = slices.Delete(f.pieces, 0, 1)
	f.held -= first.bytes
	if len(f.pieces) > 0 {
		f.sendFirst(f.pieces[0].bytes)
	}
	f.fill()
	if j := first.job; j != nil {
		j.left -= first.bytes * micro
		j.queued -= first.bytes
		if j.left == 0 {
			j.done()
		}
	}
}
