package p2p

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/libp2p/go-libp2p/core/transport"
	manet "github.com/multiformats/go-multiaddr/net"
)

// acceptPause is the pause before connections are accepted again after a failure.
const acceptPause = time.Second

// retryingUpgrader makes listeners that limit unknown clients and survive failures. Without it, one
// failed accept, for example because of too many open files, would close a shared port permanently.
type retryingUpgrader struct {
	transport.Upgrader
	n *Node
}

func (u retryingUpgrader) GateMaListener(l manet.Listener) transport.GatedMaListener {
	return u.Upgrader.GateMaListener(newBoundedListener(retryingListener{l, u.n.ctx, u.n.logger}, u.n))
}

type retryingListener struct {
	manet.Listener
	ctx    context.Context // of the node
	logger *slog.Logger
}

func (l retryingListener) Accept() (manet.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err == nil || errors.Is(err, net.ErrClosed) {
			return c, err
		}
		l.logger.Warn("p2p: cannot accept connections", "addr", l.Multiaddr(), "err", err)
		timer := time.NewTimer(acceptPause)
		select {
		case <-timer.C:
		case <-l.ctx.Done():
			timer.Stop()
			return nil, err
		}
	}
}
