package client

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/data/tokens"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/env"
)

// slowReader is a reader whose tasks wait until the test lets them go on.
type slowReader struct {
	*reader
	env.Runtime
	now    time.Time
	queue  []func()
	reads  []assign.BatchID
	failed error
	answer func(assign.BatchID) error // nil: every read succeeds
}

func newTokenReader() *slowReader {
	d := &slowReader{now: time.Unix(1000, 0)}
	provider := clienttest.Data{Err: func(batch assign.BatchID) error {
		d.reads = append(d.reads, batch)
		if d.answer == nil {
			return nil
		}
		return d.answer(batch)
	}}
	d.reader = &reader{
		tasks: &env.Tasks{Runtime: d, Work: context.Background()}, data: provider, log: slog.New(slog.DiscardHandler),
		fail: func(err error) { d.failed = err }, batches: make(map[assign.BatchID]*reading),
	}
	return d
}

// Now implements env.Runtime.
func (d *slowReader) Now() time.Time { return d.now }

// WithCancel implements env.Runtime.
func (d *slowReader) WithCancel(parent context.Context) (context.Context, context.CancelFunc) {
	return context.WithCancel(parent)
}

// WithTimeout implements env.Runtime.
func (d *slowReader) WithTimeout(parent context.Context, _ time.Duration) (context.Context, context.CancelFunc) {
	return context.WithCancel(parent)
}

// Run implements env.Runtime.
func (d *slowReader) Run(task func() func()) { d.queue = append(d.queue, func() { task()() }) }

// work lets everything that waits go on.
func (d *slowReader) work() {
	for _, task := range d.queue {
		task()
	}
	d.queue = nil
}

func batch(start, end uint64) assign.BatchID { return assign.BatchID{Start: start, End: end} }

// TestTokensAreReadOnce however often they are asked for, and are there from then on.
func TestTokensAreReadOnce(t *testing.T) {
	d := newTokenReader()
	for range 3 {
		if got := d.read(batch(4, 8), time.Second); got != nil {
			t.Error("tokens before they were read")
		}
	}
	d.work()
	for range 2 {
		if got := d.read(batch(4, 8), time.Second); got == nil || got.ID != batch(4, 8) || len(got.Sequences) != 4 {
			t.Fatalf("got %+v", got)
		}
	}
	if len(d.reads) != 1 {
		t.Errorf("%d reads", len(d.reads))
	}
}

// TestReaderForgets what nobody trains any more; an answer that comes later changes nothing,
// and is no reason to give up either.
func TestReaderForgets(t *testing.T) {
	d := newTokenReader()
	d.read(batch(0, 4), time.Second)
	d.work()
	d.read(batch(4, 8), time.Second)
	d.forget(func(b assign.BatchID) bool { return b == batch(0, 4) })
	d.answer = func(assign.BatchID) error { return tokens.ErrTokenRange }
	d.work()
	if d.failed != nil {
		t.Errorf("failed for a batch that no member wants: %v", d.failed)
	}
	if len(d.batches) != 1 || d.read(batch(0, 4), time.Second) == nil {
		t.Errorf("%d batches are left", len(d.batches))
	}
}

// asked is a data provider that says whether who asked it still waits.
type asked struct{ gone bool }

func (a *asked) Batch(ctx context.Context, _ assign.BatchID) (data.Batch, error) {
	a.gone = ctx.Err() != nil
	return data.Batch{}, errors.New("not assigned")
}

// TestReaderEndsWhatNobodyWants: a read of a batch that is given up is ended, so that the next need not wait for it.
func TestReaderEndsWhatNobodyWants(t *testing.T) {
	for _, kept := range []bool{false, true} {
		d, provider := newTokenReader(), &asked{}
		d.data = provider
		d.read(batch(4, 8), time.Second)
		d.forget(func(b assign.BatchID) bool { return kept && b == batch(4, 8) })
		if d.work(); provider.gone == kept {
			t.Errorf("kept %v: ended %v", kept, provider.gone)
		}
	}
}

// TestDataThatCannotBeRead ends the client when it never can be, and is asked for again when
// it may be, with growing pauses and as long as somebody wants it.
func TestDataThatCannotBeRead(t *testing.T) {
	d := newTokenReader()
	d.answer = func(assign.BatchID) error { return errors.New("not reachable") }
	for range 600 {
		d.read(batch(0, 4), time.Second)
		d.work()
		d.now = d.now.Add(100 * time.Millisecond)
	}
	if n := len(d.reads); n < 10 || n > 16 {
		t.Errorf("%d attempts in a minute", n)
	}
	d.answer = nil
	d.now = d.now.Add(time.Minute)
	d.read(batch(0, 4), time.Second)
	d.work()
	if d.read(batch(0, 4), time.Second) == nil || d.failed != nil {
		t.Errorf("not read when it could be: %v", d.failed)
	}
	d.answer = func(assign.BatchID) error { return tokens.ErrTokenRange }
	d.read(batch(4, 8), time.Second)
	d.work()
	if !data.IsPermanent(d.failed) {
		t.Errorf("ended with %v", d.failed)
	}
}

// TestTokensAreReadAhead has a slow provider: but for the first rounds nothing waits for it.
func TestTokensAreReadAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, clienttest.Config(2))
		var mu sync.Mutex
		early, late := 0, []uint32(nil)
		slow := func(o *options) {
			o.Data = delayed{o.Data, func(id assign.BatchID) {
				s := w.host.State()
				mu.Lock()
				defer mu.Unlock()
				if id.Start >= s.Progress.DataIndex {
					early++
				} else {
					late = append(late, s.Progress.Step)
				}
			}}
		}
		a, b := w.launch(0, slow), w.launch(1, nil)
		finishEqual(w, a, b)
		// The first round of an epoch may begin in the moment in which its tokens are asked for.
		late = slices.DeleteFunc(late, func(step uint32) bool { return step%3 == 1 })
		if early < 6 || len(late) != 0 {
			t.Errorf("%d batches were read before their rounds; within them the batches of steps %d", early, late)
		}
	})
}

// delayed is data that takes a while.
type delayed struct {
	env.DataProvider
	asked func(assign.BatchID)
}

func (d delayed) Batch(ctx context.Context, id assign.BatchID) (data.Batch, error) {
	d.asked(id)
	time.Sleep(100 * time.Millisecond)
	return d.DataProvider.Batch(ctx, id)
}

// TestNothingReadIsKeptForEver runs epochs of one round, after which none is foretold.
func TestNothingReadIsKeptForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		config := clienttest.Config(2)
		config.RoundsPerEpoch, config.TotalSteps = 1, 6
		w := newWorld(t, config)
		a, b := w.launch(0, nil), w.launch(1, nil)
		finishEqual(w, a, b)
		if kept := len(a.node.engine.reader.batches); kept > 2 {
			t.Errorf("the tokens of %d batches are kept", kept)
		}
	})
}
