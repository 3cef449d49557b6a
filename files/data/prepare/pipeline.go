package prepare

import (
	"context"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"
)

// place is where in the input a job ends.
type place struct {
	Source int   `json:"source"` // index of the file
	Read   int64 `json:"read"`   // lines, rows or texts of it that were read
}

// job is a part of the input that is encoded at once: texts of one file.
type job struct {
	texts   []sample
	heldOut []bool
	bytes   int64
	weight  int64
	skipped error // why the file is not text; nil: it is
	last    bool  // the file ends here
	end     place // where the input goes on

	source  source
	first   int64         // position of the first text
	done    chan struct{} // closed when the fields below are set
	ids     []int32       // to train on
	held    []int32       // held out
	count   int           // texts that are not empty
	problem error
}

// Bounds of jobs.
const (
	defaultJobBytes = 1 << 20   // of text, after which a job is complete
	flightBytes     = 256 << 20 // of text in all jobs; a job that has more goes alone
)

// pipeline reads the sources from a place on, encodes them with several workers, and
// gives the jobs to write in the order of the input.
func (o Options) pipeline(ctx context.Context, sources []source, from place, write func(*job) error) error {
	group, ctx := errgroup.WithContext(ctx)
	room := semaphore.NewWeighted(flightBytes)
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
			// Both or none: the writer waits for each that it gets.
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
				o.encode(j)
				close(j.done)
			}
			return nil
		})
	}
	group.Go(func() error {
		for j := range ordered {
			select {
			case <-j.done:
			case <-ctx.Done():
				return ctx.Err()
			}
			if j.problem != nil {
				return j.problem
			}
			if err := write(j); err != nil {
				return err
			}
			room.Release(j.weight)
		}
		return ctx.Err()
	})
	return group.Wait()
}

// read cuts the input into jobs.
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
		j := &job{source: s, first: r.position(), done: make(chan struct{})}
		for j.bytes < o.jobBytes && !j.last {
			text, err := r.next()
			switch {
			case errors.Is(err, io.EOF):
				j.last = true
			case errors.Is(err, errBinary):
				j.skipped = err
			case err != nil:
				// What is before is encoded first: the error that comes first in the
				// input is the one that is reported, whatever the number of workers.
				j.problem = fmt.Errorf("read text %s: %w", s.path, err)
				j.last = true
			default:
				if s.format != FormatText {
					text = text.clone() // it is valid until the next call only
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
func (o Options) encode(j *job) {
	for i, text := range j.texts {
		if text.empty() {
			continue
		}
		to := &j.ids
		if j.heldOut[i] {
			to = &j.held
		}
		*to = append(*to, o.Begin...)
		ids, err := o.appendIDs(*to, text)
		if err != nil {
			j.problem = fmt.Errorf("encode %s, text %d after %d: %w", j.source.path, i+1, j.first, err)
			return
		}
		*to = append(ids, o.Separator...)
		j.count++
	}
	j.texts = nil
}

// appendIDs appends the tokens of a sample.
func (o Options) appendIDs(to []int32, s sample) ([]int32, error) {
	for _, id := range s.ids {
		if int(id) >= o.Tokenizer.VocabSize() {
			return nil, fmt.Errorf("token id %d, but the tokenizer has %d tokens; name the matching tokenizer with --tokenizer", id, o.Tokenizer.VocabSize())
		}
	}
	if len(s.ids) > 0 {
		return append(to, s.ids...), nil
	}
	return o.Tokenizer.AppendEncode(to, s.text)
}
