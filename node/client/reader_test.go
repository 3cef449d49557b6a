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
	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/files/data"
	"github.com/psyche-go/psyche/files/data/tokens"
	"github.com/psyche-go/psyche/node/clienttest"
	"github.com/psyche-go/psyche/node/core"
	"github.com/psyche-go/psyche/node/env"
)

// slowReader is a reader whose tasks run only when the test calls work.
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
		tasks: &env.Tasks{Runtime: d, Work: context.Background()}, jobs: &core.Jobs{}, data: provider, log: slog.New(slog.DiscardHandler),
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

// work runs all waiting tasks.
func (d *slowReader) work() {
	for _, task := range d.queue {
		task()
	}
	d.queue = nil
}

// read is reader.read in a round whose positions are the numbers of its sequences.
func (d *slowReader) read(of assign.BatchID, limit time.Duration) *data.Batch {
	return d.reader.read(&coordinator.Round{BatchSize: 1000}, of, limit)
}

func batch(start, end uint64) assign.BatchID { return assign.BatchID{Start: start, End: end} }

// TestTokensAreReadOnce checks that tokens are read once, however often they are requested, and are
// available from then on.
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
			t.Fatalf("got %+v; want got != nil and got.ID == batch(4, 8) and len(got.Sequences) == 4", got)
		}
	}
	if len(d.reads) != 1 {
		t.Errorf("%d reads", len(d.reads))
	}
}

// TestReaderReadsTheSequencesOfTheRound checks that a batch has the sequences of its round, and that the tokens
// of a predicted round with other sequences are not used.
func TestReaderReadsTheSequencesOfTheRound(t *testing.T) {
	d := newTokenReader()
	round := coordinator.Round{Position: 100, DataIndex: 60, BatchSize: 8}
	d.reader.read(&round, batch(100, 104), time.Second)
	d.work()
	if d.reader.read(&round, batch(100, 104), time.Second) == nil {
		t.Fatal("no tokens")
	}
	round.Retries = []coordinator.Stretch{{Start: 5, End: 6, Tries: 1}, {Start: 9, End: 11, Tries: 2}}
	if d.reader.read(&round, batch(100, 104), time.Second) != nil {
		t.Error("the tokens of other sequences are used")
	}
	d.work()
	got := d.reader.read(&round, batch(100, 104), time.Second)
	if want := []assign.BatchID{batch(60, 64), batch(5, 6), batch(9, 11), batch(60, 61)}; got == nil || got.ID != batch(100, 104) || len(got.Sequences) != 4 || !slices.Equal(d.reads, want) {
		t.Errorf("got %+v after the reads %v, want %v", got, d.reads, want)
	}
}

// TestReaderForgets checks that batches that no round needs are forgotten. An answer or error that
// arrives later has no effect.
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

// asked is a data provider that reports whether its caller is still waiting.
type asked struct{ gone bool }

func (a *asked) Batch(ctx context.Context, _ assign.BatchID) (data.Batch, error) {
	a.gone = ctx.Err() != nil
	return data.Batch{}, errors.New("not assigned")
}

// TestReaderCancelsUnneededReads checks that the read of a batch that is no longer needed ends, so
// that the next read does not wait for it.
func TestReaderCancelsUnneededReads(t *testing.T) {
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

// TestDataThatCannotBeRead checks that permanent errors end the client, and that temporary errors
// are retried with growing pauses while the batch is needed.
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
		t.Errorf("not read after the error was over: %v", d.failed)
	}
	d.answer = func(assign.BatchID) error { return tokens.ErrTokenRange }
	d.read(batch(4, 8), time.Second)
	d.work()
	if !data.IsPermanent(d.failed) {
		t.Errorf("ended with %v", d.failed)
	}
}

// TestTokensAreReadAhead checks a slow provider. Except in the first rounds, no round waits for it.
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
		// The first round of an epoch may begin at the moment at which its tokens are requested.
		late = slices.DeleteFunc(late, func(step uint32) bool { return step%3 == 1 })
		if early < 6 || len(late) != 0 {
			t.Errorf("%d batches were read before their rounds; within them the batches of steps %d", early, late)
		}
	})
}

// delayed is a data provider with a delay.
type delayed struct {
	env.DataProvider
	asked func(assign.BatchID)
}

func (d delayed) Batch(ctx context.Context, id assign.BatchID) (data.Batch, error) {
	d.asked(id)
	time.Sleep(100 * time.Millisecond)
	return d.DataProvider.Batch(ctx, id)
}

// TestReaderForgetsOldBatches runs epochs of one round, after which no round can be predicted.
func TestReaderForgetsOldBatches(t *testing.T) {
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
