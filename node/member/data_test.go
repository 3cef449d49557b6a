package member

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data"
)

// fakeProvider is a data provider that works in the background while its context lasts.
type fakeProvider struct {
	life    context.Context
	block   bool // reads wait for their context
	reading int
	closed  bool
}

func (p *fakeProvider) Batch(ctx context.Context, _ assign.BatchID) (data.Batch, error) {
	if p.closed {
		panic("read from a closed provider")
	}
	if !p.block {
		return data.Batch{}, p.life.Err()
	}
	p.reading++
	<-ctx.Done()
	p.reading--
	return data.Batch{}, ctx.Err()
}

func (p *fakeProvider) Len() uint64 { return 1 }

func (p *fakeProvider) Close() error {
	if p.reading > 0 {
		panic("closed under a read")
	}
	p.closed = true
	return nil
}

// opens returns a function that opens the provider.
func (p *fakeProvider) opens(ctx context.Context) (data.Provider, error) {
	p.life = ctx
	return p, nil
}

// TestDataOutlivesItsOpening reads after the context of the call that opened the data has ended.
func TestDataOutlivesItsOpening(t *testing.T) {
	var d Data
	if _, err := d.Batch(t.Context(), assign.BatchID{}); err == nil {
		t.Error("read before anything was opened")
	}
	ctx, cancel := context.WithCancel(t.Context())
	p := &fakeProvider{}
	if err := d.open(ctx, p.opens); err != nil {
		t.Fatal(err)
	}
	cancel()
	if _, err := d.Batch(t.Context(), assign.BatchID{}); err != nil {
		t.Error(err)
	}
	if err := d.close(); err != nil || !p.closed || p.life.Err() == nil {
		t.Errorf("closed: %v, %+v", err, p)
	}
}

// TestDataOpeningCanBeCancelled cancels a slow opening.
func TestDataOpeningCanBeCancelled(t *testing.T) {
	var d Data
	ctx, cancel := context.WithCancel(t.Context())
	err := d.open(ctx, func(ctx context.Context) (data.Provider, error) {
		cancel()
		<-ctx.Done()
		return nil, ctx.Err()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("opened: %v", err)
	}
	p := &fakeProvider{}
	if err := d.open(ctx, p.opens); !errors.Is(err, context.Canceled) || !p.closed {
		t.Errorf("opened after its context: %v, %+v", err, p)
	}
}

// TestDataClosesTheOneBefore opens the data of a reconfigured run while the old data is being read.
func TestDataClosesTheOneBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d Data
		old, next := &fakeProvider{block: true}, &fakeProvider{}
		if err := d.open(t.Context(), old.opens); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := d.Batch(t.Context(), assign.BatchID{})
			ended <- err
		}()
		synctest.Wait()
		if err := d.open(t.Context(), next.opens); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the read ended with %v", err)
		}
		if !old.closed || next.closed {
			t.Error("the wrong provider was closed")
		}
		if err := d.close(); err != nil || !next.closed {
			t.Errorf("closed: %v, %+v", err, next)
		}
	})
}
