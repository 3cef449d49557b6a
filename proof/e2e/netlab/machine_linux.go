package netlab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// namespaces is the folder in which the ip command keeps namespaces.
const namespaces = "/var/run/netns"

// AddThis adds this machine itself as a host. Its packets to other hosts go through the link. Its
// own processes reach each other at its address without the link. A lab can contain this machine
// once.
func (l *Lab) AddThis(link Link) (*Host, error) { return l.add(link, nil, false) }

// Reach makes a TCP port of this machine's loopback address available at the same port and loopback
// address of the host. Connections go through both links. This machine must be a host of the
// lab.
func (h *Host) Reach(port int) error {
	this := h.lab.this()
	if this == nil {
		return errors.New("reach a port of this machine: call AddThis first")
	}
	service := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	outer, err := net.Listen("tcp", netip.AddrPortFrom(this.address, 0).String())
	if err != nil {
		return fmt.Errorf("reach port %d: %w", port, err)
	}
	var inner net.Listener
	err = h.inside(func() (err error) {
		inner, err = net.Listen("tcp", service)
		return err
	})
	if err != nil {
		return errors.Join(fmt.Errorf("reach port %d: %w", port, err), outer.Close())
	}
	h.lab.relay(outer, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", service)
	})
	h.lab.relay(inner, func(ctx context.Context) (conn net.Conn, err error) {
		err = h.inside(func() (err error) {
			conn, err = (&net.Dialer{}).DialContext(ctx, "tcp", outer.Addr().String())
			return err
		})
		return conn, err
	})
	return nil
}

// this returns the host that is this machine, or nil.
func (l *Lab) this() *Host {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.hosts {
		if h.namespace == "" {
			return h
		}
	}
	return nil
}

// inside calls do on a thread in the host's namespace. Sockets that do opens belong to the
// namespace.
func (h *Host) inside(do func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // without an unlock: the thread ends with this goroutine
		result <- func() error {
			namespace, err := os.Open(filepath.Join(namespaces, h.namespace))
			if err != nil {
				return err
			}
			err = unix.Setns(int(namespace.Fd()), unix.CLONE_NEWNET)
			if err := errors.Join(err, namespace.Close()); err != nil {
				return fmt.Errorf("enter namespace %s: %w", h.namespace, err)
			}
			return do()
		}()
	}()
	return <-result
}

// relay connects each accepted connection with a connection that dial makes, until the lab is
// closed.
func (l *Lab) relay(from net.Listener, dial func(context.Context) (net.Conn, error)) {
	ctx, cancel := context.WithCancel(context.Background())
	l.tasks.Go(func() {
		<-l.done
		cancel()
		_ = from.Close()
	})
	l.tasks.Go(func() {
		for {
			accepted, err := from.Accept()
			if err != nil {
				return
			}
			l.tasks.Go(func() {
				if dialled, err := dial(ctx); err == nil {
					join(ctx, accepted, dialled)
				}
				_ = accepted.Close()
			})
		}
	})
}

// join copies between two connections in both directions until both have ended, or ctx has.
func join(ctx context.Context, a, b net.Conn) {
	stop := context.AfterFunc(ctx, func() { _, _ = a.Close(), b.Close() })
	defer stop()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		copyHalf(a, b)
	}()
	copyHalf(b, a)
	<-copied
	_ = b.Close()
}

// copyHalf copies one direction of a connection, and forwards the end of the stream.
func copyHalf(to, from net.Conn) {
	if _, err := io.Copy(to, from); err != nil {
		_, _ = to.Close(), from.Close()
		return
	}
	if half, ok := to.(*net.TCPConn); ok {
		_ = half.CloseWrite()
	}
}
