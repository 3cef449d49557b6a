package prepare

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

// place is the position in the input at which a job ends.
type place struct {
	Source int   `json:"source"` // index of the file
	Read   int64 `json:"read"`   // lines, rows or texts read from the file
}

// job is a part of the input that is encoded at once: texts of one file.
type job struct {
	texts   []sample
	heldOut []bool
	bytes   int64
	weight  int64
	skipped error // why the file is not text; nil if it is text
	last    bool  // the file ends here
	end     place // end of the job in the input

	source  source
	first   int64         // position of the first text
	reached chan struct{} // closed when the job is the next to be written
	parts   chan part     // tokens; closed when the fields below are set
	count   int           // texts that are not empty
	problem error
}

// part is a series of tokens of a job, in order.
type part struct {
	heldOut bool
	ids     []int32
	place   chan struct{} // slot of ahead, released once the part is written
}

// ahead bounds the tokens that wait to be written. Parts of the job that is written next use
// separate slots, so the other jobs cannot block it.
type ahead struct{ any, next chan struct{} }

func newAhead() ahead { return ahead{make(chan struct{}, aheadParts), make(chan struct{}, 4)} }

// take waits for a slot for a part of a job.
func (a ahead) take(ctx context.Context, j *job) (chan struct{}, error) {
	select {
	case a.any <- struct{}{}:
		return a.any, nil
	case <-j.reached:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	select {
	case a.next <- struct{}{}:
		return a.next, nil
	case a.any <- struct{}{}:
		return a.any, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Bounds of jobs.
const (
	defaultJobBytes = 1 << 20   // bytes of text after which a job is complete
	flightBytes     = 256 << 20 // bytes of text in all jobs; a larger job runs alone
	partIDs         = 1 << 16   // tokens after which a part is complete
	aheadParts      = 256       // parts of all jobs that wait to be written: about 64 MiB
)

// pipeline reads the sources from a position on and encodes them with several workers. It passes
// their tokens to write, and then the job to finish, in the order of the input.
func (o Options) pipeline(ctx context.Context, sources []source, from place, write func(part) error, finish func(*job) error) error {
	group, ctx := errgroup.WithContext(ctx)
	room := semaphore.NewWeighted(flightBytes)
	places := newAhead()
	work := make(chan *job)
	ordered := make(chan *job, 4*o.Workers)
	group.Go(func() error {
		defer close(work)
		defer close(ordered)
		return o.read(ctx, sources, from, func(j *job) error {
			j.weight = min(j.bytes, flightBytes)
			if err := room.Acquire(ctx, j.weight); err != nil {
				return err
			}
			// A job that goes to the writer (ordered) must also go to a worker (work), because the writer waits
			// for the worker.
			for _, to := range []chan<- *job{ordered, work} {
				select {
				case to <- j:
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		})
	})
	for range o.Workers {
		group.Go(func() error {
			for j := range work {
				o.encode(ctx, j, places)
			}
			return nil
		})
	}
	group.Go(func() error {
		for j := range ordered {
			if err := j.write(ctx, write); err != nil {
				return err
			}
			if err := finish(j); err != nil {
				return err
			}
			room.Release(j.weight)
		}
		return ctx.Err()
	})
	return group.Wait()
}

// write writes the tokens of a job as they arrive.
func (j *job) write(ctx context.Context, write func(part) error) error {
	close(j.reached)
	for {
		select {
		case next, more := <-j.parts:
			if !more {
				return j.problem
			}
			if err := write(next); err != nil {
				return err
			}
			<-next.place
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// read splits the input into jobs.
func (o Options) read(ctx context.Context, sources []source, from place, emit func(*job) error) error {
	for index := from.Source; index < len(sources); index++ {
		if err := o.readSource(ctx, sources[index], index, from.Read, emit); err != nil {
			return err
		}
		from.Read = 0
	}
	return nil
}

func (o Options) readSource(ctx context.Context, s source, index int, position int64, emit func(*job) error) (err error) {
	r, err := o.open(ctx, s, position)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		j := &job{source: s, first: r.position(), reached: make(chan struct{}), parts: make(chan part, aheadParts)}
		for j.bytes < o.jobBytes && !j.last {
			text, err := r.next()
			switch {
			case errors.Is(err, io.EOF):
				j.last = true
			case errors.Is(err, errBinary):
				j.skipped = err
			case err != nil:
				// The texts before the error are encoded first. So the first error in the input is
				// reported, whatever the number of workers.
				j.problem = fmt.Errorf("read text %s: %w", s.path, err)
				j.last = true
			default:
				if s.format != formatText {
					text = text.clone() // it is valid only until the next call
				}
				j.texts = append(j.texts, text)
				j.heldOut = append(j.heldOut, o.holdsOut(s, r.position()))
				j.bytes += text.size() + 16
			}
		}
		j.end = place{Source: index, Read: r.position()}
		if j.last {
			j.end = place{Source: index + 1}
		}
		if err := emit(j); err != nil || j.last {
			return err
		}
	}
}

// encode encodes the texts of a job.
func (o Options) encode(ctx context.Context, j *job, places ahead) {
	defer close(j.parts)
	out := collector{send: func(next part) (err error) {
		if next.place, err = places.take(ctx, j); err != nil {
			return err
		}
		select {
		case j.parts <- next:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}}
	for i, text := range j.texts {
		j.texts[i] = sample{} // its memory is free after encoding
		if text.empty() {
			continue
		}
		err := out.add(j.heldOut[i], o.Begin)
		if err == nil {
			err = o.addIDs(&out, j.heldOut[i], text)
		}
		if err == nil {
			err = out.add(j.heldOut[i], o.Separator)
		}
		if err != nil {
			j.problem = fmt.Errorf("encode %s, text %d after %d: %w", j.source.path, i+1, j.first, err)
			return
		}
		j.count++
	}
	if err := out.flush(); err != nil {
		j.problem = err
	}
}

// collector builds parts from tokens.
type collector struct {
	ids  [2][]int32 // for training, and held out
	send func(part) error
}

// room returns the tokens of a kind so far, for appending. It sends complete parts first.
func (c *collector) room(heldOut bool) (to *[]int32, err error) {
	to = &c.ids[0]
	if heldOut {
		to = &c.ids[1]
	}
	if len(*to) >= partIDs {
		next := part{heldOut: heldOut, ids: *to}
		*to = nil
		err = c.send(next)
	}
	return to, err
}

// add adds tokens. The caller may change them afterwards.
func (c *collector) add(heldOut bool, ids []int32) error {
	to, err := c.room(heldOut)
	*to = append(*to, ids...)
	return err
}

// flush sends the tokens so far.
func (c *collector) flush() (err error) {
	for i, ids := range c.ids {
		if len(ids) > 0 && err == nil {
			err = c.send(part{heldOut: i == 1, ids: ids})
		}
	}
	return err
}

// addIDs adds the tokens of a sample.
func (o Options) addIDs(to *collector, heldOut bool, s sample) error {
	for _, id := range s.ids {
		if int(id) >= o.Tokenizer.VocabSize() {
			return fmt.Errorf("token id %d, but the tokenizer has %d tokens; name the matching tokenizer with --tokenizer", id, o.Tokenizer.VocabSize())
		}
	}
	switch {
	case len(s.ids) > 0:
		for ids := range slices.Chunk(s.ids, partIDs) {
			if err := to.add(heldOut, ids); err != nil {
				return err
			}
		}
	case len(s.text) > partIDs:
		return o.Tokenizer.EncodeParts(s.text, partIDs, func(ids []int32) error { return to.add(heldOut, ids) })
	default:
		ids, err := to.room(heldOut)
		if err != nil {
			return err
		}
		*ids, err = o.Tokenizer.AppendEncode(*ids, s.text)
		return err
	}
	return nil
}
