package rpc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// maxEndpoints limits the nodes of a pool.
const maxEndpoints = 16

// Options configure a Pool.
type Options struct {
	Endpoints []Address
	// Timeout limits every request. Zero means DefaultTimeout.
	Timeout time.Duration
	// Transport carries the requests. If nil, the Pool creates a transport with a few connections
	// per node.
	Transport http.RoundTripper
}

// Pool is one or several nodes of the same chain.
type Pool struct {
	endpoints []*Endpoint
	transport *http.Transport // to close; nil if it is the caller's
}

// NewPool returns a Pool. It does not connect.
func NewPool(o Options) (*Pool, error) {
	if len(o.Endpoints) == 0 || len(o.Endpoints) > maxEndpoints {
		return nil, fmt.Errorf("endpoints of the chain: %d, want 1 to %d", len(o.Endpoints), maxEndpoints)
	}
	o.Timeout = cmp.Or(o.Timeout, DefaultTimeout)
	p := &Pool{}
	if o.Transport == nil {
		p.transport = &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: 4, MaxConnsPerHost: 16, IdleConnTimeout: time.Minute,
			TLSHandshakeTimeout: o.Timeout, MaxResponseHeaderBytes: 64 << 10, ForceAttemptHTTP2: true,
		}
		o.Transport = p.transport
	}
	client := &http.Client{
		Transport: o.Transport,
		// A node has no reason to redirect a client.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	for i, address := range o.Endpoints {
		if slices.Contains(o.Endpoints[:i], address) {
			return nil, fmt.Errorf("endpoint %s occurs twice", redact(address.HTTP))
		}
		p.endpoints = append(p.endpoints, &Endpoint{address: address, name: redact(address.HTTP), timeout: o.Timeout, client: client})
	}
	p.nameApart()
	return p, nil
}

// nameApart numbers nodes whose names are equal without their secrets.
func (p *Pool) nameApart() {
	count := make(map[string]int)
	for _, e := range p.endpoints {
		if count[e.name]++; count[e.name] > 1 {
			e.name = fmt.Sprintf("%s#%d", e.name, count[e.name])
		}
	}
}

// Endpoints returns the nodes, in the order of Options.
func (p *Pool) Endpoints() []*Endpoint { return p.endpoints }

// Close closes idle connections.
func (p *Pool) Close() {
	if p.transport != nil {
		p.transport.CloseIdleConnections()
	}
}

// Any asks one node after another, the healthiest first, until one answers. If all nodes are
// paused, it waits for one. A *nodeError that concerns the request instead of the node counts as an
// answer.
func Any[T any](ctx context.Context, p *Pool, ask func(ctx context.Context, e *Endpoint) (T, error)) (T, error) {
	return AnyOf(ctx, p.ByHealth(), ask)
}

// AnyOf is Any for some of a pool's nodes in the caller's order.
func AnyOf[T any](ctx context.Context, endpoints []*Endpoint, ask func(ctx context.Context, e *Endpoint) (T, error)) (T, error) {
	var none T
	var failed []error
	for _, e := range endpoints {
		if err := e.rest(ctx); err != nil {
			return none, errors.Join(append(failed, err)...)
		}
		result, err := ask(ctx, e)
		if err == nil {
			return result, nil
		}
		if refused, ok := errors.AsType[*nodeError](err); ok && !refused.ofNode() {
			return none, err
		}
		failed = append(failed, err)
		if ctx.Err() != nil {
			break
		}
	}
	return none, errors.Join(failed...)
}

// ByHealth returns the nodes ordered by availability and number of failures.
func (p *Pool) ByHealth() []*Endpoint {
	now := time.Now()
	type rated struct {
		endpoint *Endpoint
		health   health
	}
	all := make([]rated, len(p.endpoints))
	for i, e := range p.endpoints {
		all[i] = rated{e, e.lately()}
	}
	slices.SortStableFunc(all, func(a, b rated) int { return a.health.compare(b.health, now) })
	sorted := make([]*Endpoint, len(all))
	for i := range all {
		sorted[i] = all[i].endpoint
	}
	return sorted
}
