package exchange

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/node/env"
)

// PushProtocol is the protocol with which a trainer pushes its own result to a member together with
// the announcement, which saves a round trip. docs/p2p.md documents its bytes.
const PushProtocol = "/psyche/push/1"

// MaxPushed is the maximum size of a pushed result in bytes. A result of 2 M parameters with the
// settings of configs/quickstart has 470 KB.
const MaxPushed = 512 << 10

const maxPush = 2 + MaxAnnouncementSize + MaxPushed

// EncodePush returns the request that pushes a result and its signed announcement.
func EncodePush(raw, payload []byte) []byte {
	b := binary.LittleEndian.AppendUint16(make([]byte, 0, 2+len(raw)+len(payload)), uint16(len(raw)))
	return append(append(b, raw...), payload...)
}

// Push sends the output of EncodePush to a peer. Concurrent pushes may share it.
func Push(ctx context.Context, network env.Requests, peer identity.ID, push []byte) error {
	_, err := network.Request(ctx, peer, PushProtocol, push, 0)
	return err
}

// TakePushes calls take for each result that peers push. take may be called concurrently.
func TakePushes(network env.Requests, take func(from identity.ID, raw, payload []byte) error) {
	network.Handle(PushProtocol, maxPush, func(_ context.Context, from identity.ID, request []byte) ([]byte, error) {
		raw, payload, err := decodePush(request)
		if err != nil {
			return nil, err
		}
		return nil, take(from, raw, payload)
	})
}

// decodePush splits the output of EncodePush, without checking the parts.
func decodePush(b []byte) (raw, payload []byte, err error) {
	if len(b) < 2 {
		return nil, nil, fmt.Errorf("%w: a push has %d bytes", errMalformed, len(b))
	}
	size := int(binary.LittleEndian.Uint16(b))
	b = b[2:]
	if size > MaxAnnouncementSize || size >= len(b) || len(b)-size > MaxPushed {
		return nil, nil, fmt.Errorf("%w: a push of %d bytes claims an announcement of %d bytes", errMalformed, len(b), size)
	}
	return b[:size:size], b[size:], nil
}
