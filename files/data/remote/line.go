package remote

import (
	"context"
	"sync"
	"time"
)

// patience is how long a call waits for a running call for an audit before it cancels that call.
// The cancellation costs a new connection, so patience is at least the time that connecting takes.
const patience = 500 * time.Millisecond

// line lets one call at a time use the connection, with calls for audits after all others: a data
// server may take long to answer them, and they must not delay the client's own training.
type line struct {
	busy chan struct{} // contains a value while a call uses the connection

	mu      sync.Mutex
	waiting int                // waiting calls that are not for audits
	yield   context.CancelFunc // cancels the call for an audit that uses the connection; nil: no such call
}

// enter waits until a call may use the connection. leave ends the use.
func (l *line) enter(ctx context.Context) (leave func(), err error) {
	l.wait(1)
	defer l.wait(-1)
	defer time.AfterFunc(patience, l.hurry).Stop()
	select {
	case l.busy <- struct{}{}:
		return func() { <-l.busy }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *line) wait(more int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting += more
}

// hurry cancels the running call for an audit if other calls wait.
func (l *line) hurry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting > 0 && l.yield != nil {
		l.yield()
	}
}

// enterLast is enter for a call for an audit. yield cancels the call if other calls wait; if it is
// nil, the call cannot be cancelled.
func (l *line) enterLast(ctx context.Context, yield context.CancelFunc) (leave func(), err error) {
	for {
		select {
		case l.busy <- struct{}{}:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if l.lend(yield) {
			return func() { l.end(); <-l.busy }, nil
		}
		<-l.busy // waiting calls are next
	}
}

// lend lets a call for an audit use the connection, and records yield for its cancellation. It
// returns false if other calls wait.
func (l *line) lend(yield context.CancelFunc) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting > 0 {
		return false
	}
	l.yield = yield
	return true
}

func (l *line) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.yield = nil
}
