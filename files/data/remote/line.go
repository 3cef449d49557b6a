package remote

import (
	"context"
	"sync"
	"time"
)

// patience is how long a call waits for the end of one for an audit. It is no less than a new connection takes, which is the
// price of ending that.
const patience = 500 * time.Millisecond

// line lets one call at a time use the connection, and those for audits after all others: a data server may take long to
// answer them, and what its client trains must not come too late.
type line struct {
	busy chan struct{} // has a value while a call uses the connection

	mu      sync.Mutex
	waiting int                // calls that are not for audits
	yield   context.CancelFunc // ends the call for an audit that uses the connection; nil: nothing does
}

// enter waits until a call may use the connection, until leave.
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

// hurry ends a call for an audit if others wait.
func (l *line) hurry() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting > 0 && l.yield != nil {
		l.yield()
	}
}

// enterLast is enter for a call for an audit, which yield ends; nil: it is not to be ended.
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
		<-l.busy // whoever waits has it next
	}
}

// lend notes what ends the call for an audit that uses the connection from now on, unless others wait.
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
