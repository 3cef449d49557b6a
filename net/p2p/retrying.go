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

// acceptPause is the time until connections are accepted again after that failed.
const acceptPause = time.Second

// retryingUpgrader makes listeners that bound strangers and outlive a failure: a shared port is closed for
// good when accepting fails once, as it does while there are too many open files.
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
