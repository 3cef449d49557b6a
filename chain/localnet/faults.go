package localnet

import (
	"encoding/json"
	"time"
)

// Faults are simulated faults of an endpoint. The zero value is a working node.
type Faults struct {
	Dead      bool          // accepts no connection, and drops existing ones
	Throttled bool          // answers 429
	Retry     time.Duration // Retry-After of a throttled endpoint, in whole seconds
	Unhealthy bool          // reports that it is behind, and rejects transactions
	Lost      float64       // share of accepted transactions that it does not forward
	Lag       int           // slots that it is behind, at most maxLag
	Mute      bool          // confirms subscriptions but sends no notifications
	Delay     time.Duration // before each answer

	// Falsify replaces the endpoint's results, including the results in notifications. Their methods
	// are named accountNotification and so on. The result is in its encoded form.
	Falsify func(method string, result json.RawMessage) json.RawMessage
}

// SetFaults replaces the faults of an endpoint.
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

// faulty returns the current faults.
func (e *Endpoint) faulty() Faults {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.faults
}

// loses decides randomly whether a transaction is lost.
func (e *Endpoint) loses(share float64) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return share > 0 && e.random.Float64() < share
}

// falsified returns a result after Falsify.
func (f *Faults) falsified(method string, result any) any {
	if f.Falsify == nil {
		return result
	}
	raw, err := json.Marshal(result)
	if err != nil {
		return result
	}
	return f.Falsify(method, raw)
}
