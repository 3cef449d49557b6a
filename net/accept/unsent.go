package accept

import (
	"net"
)

// LimitUnsent bounds the bytes that the system keeps of a TCP socket before it sends them, if the system can. Without
// a bound a client on a slow link receives a frame minutes after it was written. The bound does not limit the rate:
// bytes on the way to the client do not count.
func LimitUnsent(socket net.Conn, bytes int) {
	for {
		inner, ok := socket.(interface{ NetConn() net.Conn })
		if !ok {
			break
		}
		socket = inner.NetConn()
	}
	if tcp, ok := socket.(*net.TCPConn); ok {
		if raw, err := tcp.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { limitUnsent(fd, bytes) }) // an older system does not know the option
		}
	}
}
