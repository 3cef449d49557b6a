package links

import "slices"

// fair is a link that machines share equally.
type fair struct {
	clock   Clock
	rate    int64
	jobs    []*job   // in order of arrival
	classes [2]class // other messages, and bulk
	updated int64    // time at which left of the jobs was correct
	alarm   uint64
	woken   bool // an event at the current time will look at all jobs
}

// class counts jobs of one kind.
type class struct {
	jobs  []int64 // per machine, starting with Outside
	peers int64   // machines with jobs
}

func newFair(clock Clock, line Line, machines int) *fair {
	f := &fair{clock: clock, rate: max(line.Rate, 1), updated: clock.Now()}
	for i := range f.classes {
		f.classes[i].jobs = make([]int64, machines+1)
	}
	return f
}

func (f *fair) classOf(j *job) *class {
	if j.bulk {
		return &f.classes[1]
	}
	return &f.classes[0]
}

func (f *fair) add(j *job) {
	f.advance()
	f.jobs = append(f.jobs, j)
	c := f.classOf(j)
	if c.jobs[j.peer+1]++; c.jobs[j.peer+1] == 1 {
		c.peers++
	}
	f.changed()
}

func (f *fair) remove(j *job) {
	f.advance()
	i := slices.Index(f.jobs, j)
	if i < 0 {
		return
	}
	f.jobs = slices.Delete(f.jobs, i, i+1)
	f.leave(j)
	f.changed()
}

func (f *fair) leave(j *job) {
	c := f.classOf(j)
	if c.jobs[j.peer+1]--; c.jobs[j.peer+1] == 0 {
		c.peers--
	}
}

func (f *fair) setRate(bytesPerSecond int64) {
	f.advance()
	f.rate = max(bytesPerSecond, 1)
	f.changed()
}

// share returns the fraction of the rate for a job: numerator / sharers.
func (f *fair) share(j *job) (numerator, sharers int64) {
	c := f.classOf(j)
	numerator, sharers = 1, c.peers*c.jobs[j.peer+1]
	if f.classes[0].peers > 0 && f.classes[1].peers > 0 {
		sharers *= bulkShare
		if !j.bulk {
			numerator = bulkShare - 1
		}
	}
	return numerator, sharers
}

// advance updates every job with its share since the last change.
func (f *fair) advance() {
	now := f.clock.Now()
	if past := now - f.updated; past > 0 {
		for _, j := range f.jobs {
			numerator, sharers := f.share(j)
			j.left -= min(j.left, amount(past, sharers, f.rate*numerator))
		}
	}
	f.updated = now
}

// changed schedules one look at the jobs for all changes at the current time.
func (f *fair) changed() {
	if f.woken {
		return
	}
	f.woken = true
	f.clock.At(f.clock.Now(), func() {
		f.woken = false
		f.look()
	})
}

// look ends completed jobs, and schedules the next look.
func (f *fair) look() {
	f.advance()
	var done []*job
	f.jobs = slices.DeleteFunc(f.jobs, func(j *job) bool {
		if j.left == 0 {
			done = append(done, j)
		}
		return j.left == 0
	})
	for _, j := range done {
		f.leave(j)
	}
	next := none
	for _, j := range f.jobs {
		numerator, sharers := f.share(j)
		next = min(next, nanoseconds(j.left, sharers, f.rate*numerator))
	}
	f.alarm++
	if alarm := f.alarm; next != none {
		f.clock.At(f.updated+next, func() {
			if f.alarm == alarm {
				f.look()
			}
		})
	}
	for _, j := range done {
		j.done()
	}
}
