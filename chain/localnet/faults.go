package localnet

import (
	"encoding/json"
	"time"
)

// Faults are what is wrong with an endpoint. The zero Faults are a node that works.
type Faults struct {
	Dead      bool          // takes no connection, and drops those it has
	Throttled bool          // answers 429
	Retry     time.Duration // what it says in Retry-After, in whole seconds, if it is throttled
	Unhealthy bool          // says that it is behind, and takes no transactions
	Lost      float64       // share of the transactions that it takes and does not pass on
	Lag       int           // slots that it is behind, at most maxLag
	Mute      bool          // confirms subscriptions and then says nothing
	Delay     time.Duration // before each answer

	// Lie changes what the endpoint answers, also in notifications, whose methods are called
	// accountNotification and so on. The result is as it would be sent.
	Lie func(method string, result json.RawMessage) json.RawMessage
}

// SetFaults changes what is wrong with an endpoint, from now on.
func (e *Endpoint) SetFaults(f Faults) {
	f.Lag = min(max(f.Lag, 0), maxLag)
	e.mu.Lock()
	e.faults = f
	e.mu.Unlock()
	if f.Dead {
		e.closeSockets()
	}
}

func (e *Endpoint) closeSockets() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for s := range e.sockets {
		s.close()
	}
}

// faulty returns what is wrong now.
func (e *Endpoint) faulty() Faults {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.faults
}

// loses draws whether a transaction is lost.
func (e *Endpoint) loses(share float64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return share > 0 && e.random.Float64() < share
}

// lied returns a result as the endpoint wants it to be.
func (f *Faults) lied(method string, result any) any {
	if f.Lie == nil {
		return result
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return result
	}
	return f.Lie(method, raw)
}
