package cheat

import (
	"context"
	"errors"

	"github.com/psyche-go/psyche/client/audits"
	"github.com/psyche-go/psyche/client/env"
	"github.com/psyche-go/psyche/coordinator"
	"github.com/psyche-go/psyche/identity"
)

// errClosed is what who asks for an opening gets.
var errClosed = errors.New("it does not open")

// Closed returns network and backend for a client that opens its results to nobody: neither to who
// audits it, nor to jurors that ask, nor for all when it is accused.
func Closed(network env.Network, backend env.Backend) (env.Network, env.Backend) {
	return closedNetwork{network}, closedBackend{backend}
}

type closedNetwork struct{ env.Network }

// Handle implements env.Requests.
func (n closedNetwork) Handle(protocol string, maxRequest int, handle func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)) {
	if protocol == audits.OpeningProtocol {
		handle = func(context.Context, identity.ID, []byte) ([]byte, error) { return nil, errClosed }
	}
	n.Network.Handle(protocol, maxRequest, handle)
}

type closedBackend struct{ env.Backend }

// Submit implements env.Backend.
func (b closedBackend) Submit(ctx context.Context, a coordinator.Action) error {
	if _, opens := a.(coordinator.Open); opens {
		return errClosed
	}
	return b.Backend.Submit(ctx, a)
}
