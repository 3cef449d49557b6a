package p2p

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// pace lets the kernel send as fast as the line turns out to be (BBR), where it may: by default a sender slows down for each
// packet that is lost, as if the line were full, and over a line that loses one of a hundred it stays slow. A kernel that has not
// BBR, or does not allow it to everybody, goes on as it does.
func pace(conn net.Conn) {
	c, ok := conn.(syscall.Conn)
	if !ok {
		return
	}
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, "bbr")
		})
	}
}
