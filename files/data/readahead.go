package data

import (
	"context"
	"errors"
	"sync"

	"github.com/psyche-go/psyche/core/assign"
)

// Limits of reading ahead from one location.
const (
	aheadBatches = 4
	aheadTokens  = 16 << 20 // of all its batches together; four bytes each
)

// ahead is a Provider that reads ahead in the background when batches are requested at regular
// distances, as in solo training. Otherwise, as in a run with many members, where the next batch is
// drawn in each round, it reads only requested batches.
type ahead struct {
	Provider
	seqLen int
	ctx    context.Context // ends with Close
	end    context.CancelFunc
	wait   sync.WaitGroup

	mu      sync.Mutex
	last    assign.BatchID // previous request
	stride  uint64         // distance from the request before that
	entries map[assign.BatchID]*entry
}

// entry is a batch that is being read or was read.
type entry struct {
	cancel context.CancelFunc
	done   chan struct{}
	batch  Batch
	err    error
}

// readAhead returns a Provider of r that reads ahead.
func readAhead(r reader, err error, seqLen int) (Provider, error) {
	plain, err := asProvider(r, err, seqLen)
	if err != nil {
		return nil, err
	}
	a := &ahead{Provider: plain, seqLen: seqLen, entries: map[assign.BatchID]*entry{}}
	a.ctx, a.end = context.WithCancel(context.Background())
	return a, nil
}

// Close implements Provider.
func (a *ahead) Close() error {
	a.mu.Lock() // no other read may start in between
	a.end()
	a.mu.Unlock()
	a.wait.Wait()
	return a.Provider.Close()
}

// Batch implements Provider.
func (a *ahead) Batch(ctx context.Context, id assign.BatchID) (Batch, error) {
	if found := a.take(id); found != nil {
		select {
		case <-found.done:
			if found.err == nil {
				a.plan(id)
				return found.batch, nil
			}
		case <-ctx.Done():
			found.cancel()
			return Batch{}, ctx.Err()
		}
	}
	batch, err := a.Provider.Batch(ctx, id)
	if err == nil {
		a.plan(id)
	}
	return batch, err
}

// take removes a batch from the batches that were read ahead.
func (a *ahead) take(id assign.BatchID) *entry {
	a.mu.Lock()
	defer a.mu.Unlock()
	found := a.entries[id]
	delete(a.entries, id)
	return found
}

// plan starts to read the next batches if requests are regular, and drops all others.
func (a *ahead) plan(id assign.BatchID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	stride := id.Start - a.last.Start
	regular := id.Start > a.last.Start && id.Len() == a.last.Len() && (stride == id.Len() || stride == a.stride)
	a.last, a.stride = id, stride
	wanted := map[assign.BatchID]bool{}
	if regular && a.ctx.Err() == nil {
		for n := range min(aheadBatches, aheadTokens/(id.Len()*uint64(a.seqLen+1))) {
			next := assign.BatchID{Start: id.Start + (n+1)*stride, End: id.End + (n+1)*stride}
			if next.Start < id.Start || next.End < next.Start {
				break // the indices end here
			}
			wanted[next] = true
			if a.entries[next] == nil {
				a.entries[next] = a.begin(next)
			}
		}
	}
	for other, entry := range a.entries {
		if !wanted[other] {
			entry.cancel()
			delete(a.entries, other)
		}
	}
}

// begin starts to read a batch in the background.
func (a *ahead) begin(id assign.BatchID) *entry {
	ctx, cancel := context.WithCancel(a.ctx)
	e := &entry{cancel: cancel, done: make(chan struct{}), err: errors.New("not read yet")}
	a.wait.Go(func() {
		defer close(e.done)
		defer cancel()
		e.batch, e.err = a.Provider.Batch(ctx, id)
	})
	return e
}
