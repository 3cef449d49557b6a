package p2p

import (
	"log/slog"
	"net"
	"syscall"
	"testing"
	"testing/synctest"

	ma "github.com/multiformats/go-multiaddr"
	manet "github.com/multiformats/go-multiaddr/net"
)

// failing is a listener that fails left times before it is closed.
type failing struct {
	manet.Listener
	left *int
}

func (f failing) Multiaddr() ma.Multiaddr { return ma.StringCast("/ip4/127.0.0.1/tcp/1") }

func (f failing) Accept() (manet.Conn, error) {
	if *f.left--; *f.left < 0 {
		return nil, &net.OpError{Op: "accept", Err: net.ErrClosed}
	}
	return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
}

func TestTooManyOpenFilesEndNoListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		left := 3
		l := retryingListener{failing{left: &left}, t.Context(), slog.New(slog.DiscardHandler)}
		if _, err := l.Accept(); err == nil || left != -1 {
			t.Errorf("ended with %v and %d failures left", err, left)
		}
	})
}
