package tcp

import (
	"net"
	"sync/atomic"
)

// counted counts the bytes of a socket, including TLS overhead.
type counted struct {
	net.Conn
	sent, received *atomic.Uint64
}

func (c counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(uint64(max(n, 0)))
	return n, err
}

func (c counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.Add(uint64(max(n, 0)))
	return n, err
}
