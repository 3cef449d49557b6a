package accept

import (
	"net"
)

// LimitUnsent limits the bytes that the operating system buffers for a TCP socket before it sends
// them, if the system supports this. Without a limit, a client on a slow link may receive a frame
// minutes after it was written. The limit does not reduce the rate, because sent bytes in flight do
// not count.
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
			_ = raw.Control(func(fd uintptr) { limitUnsent(fd, bytes) }) // an older system does not have the option
		}
	}
}
