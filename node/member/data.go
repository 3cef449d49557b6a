package member

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/psyche-go/psyche/core/assign"
	"github.com/psyche-go/psyche/files/data"
)

// Data reads the data of the run's current definition. A provider is used from open until the next
// open or close, and is closed when its last reader has finished. Data implements env.DataProvider.
type Data struct {
	mu      sync.Mutex
	current *openData // nil before the first open and after close
}

// openData is one provider and its readers.
type openData struct {
	provider data.Provider
	life     context.Context // ends before the provider is closed
	end      context.CancelFunc
	reads    sync.WaitGroup
}

// open replaces the open provider. The context of opens also limits the provider's background work:
// it lasts until the provider is closed. If ctx ends before opens returns, that context ends too.
// Passing ctx itself would be wrong, because ctx may end after the call.
func (d *Data) open(ctx context.Context, opens func(ctx context.Context) (data.Provider, error)) error {
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	opened := context.AfterFunc(ctx, end)
	provider, err := opens(life)
	if err == nil && !opened() {
		err = errors.Join(fmt.Errorf("open data: %w", context.Cause(ctx)), provider.Close())
	}
	if err != nil {
		end()
		return err
	}
	return d.replace(&openData{provider: provider, life: life, end: end})
}

// close closes the provider.
func (d *Data) close() error { return d.replace(nil) }

func (d *Data) replace(next *openData) error {
	d.mu.Lock()
	old := d.current
	d.current = next
	d.mu.Unlock()
	if old == nil {
		return nil
	}
	old.end()
	old.reads.Wait()
	if err := old.provider.Close(); err != nil {
		return fmt.Errorf("close data: %w", err)
	}
	return nil
}

// Batch implements env.DataProvider.
func (d *Data) Batch(ctx context.Context, id assign.BatchID) (data.Batch, error) {
	return d.Gather(ctx, id, []assign.BatchID{id}, false)
}

// Gather is Batch for the sequences of several intervals; see data.Gather.
func (d *Data) Gather(ctx context.Context, id assign.BatchID, from []assign.BatchID, audit bool) (data.Batch, error) {
	d.mu.Lock()
	current := d.current
	if current == nil {
		d.mu.Unlock()
		return data.Batch{}, errors.New("read data: the model is not loaded yet")
	}
	current.reads.Add(1)
	d.mu.Unlock()
	defer current.reads.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(current.life, cancel)()
	return data.Gather(ctx, current.provider, id, from, audit)
}
