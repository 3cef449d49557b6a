package cheat

import (
	"context"
	"errors"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/node/auditor"
	"github.com/psyche-go/psyche/node/env"
)

// errClosed is the answer to every request for an opening.
var errClosed = errors.New("did not open")

// Closed returns the network of a client that does not open its results to auditors or jurors.
func Closed(network env.Network) env.Network { return closedNetwork{network} }

type closedNetwork struct{ env.Network }

// Handle implements env.Requests.
func (n closedNetwork) Handle(protocol string, maxRequest int, handle func(ctx context.Context, from identity.ID, request []byte) ([]byte, error)) {
	if protocol == auditor.OpeningProtocol {
		handle = func(context.Context, identity.ID, []byte) ([]byte, error) { return nil, errClosed }
	}
	n.Network.Handle(protocol, maxRequest, handle)
}
