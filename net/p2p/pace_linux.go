package p2p

import (
	"net"
	"syscall"

	"golang.org/x/sys/unix"
)

// pace enables the BBR congestion control of the kernel if possible. The default slows down after
// each lost packet, as if the link were full, and stays slow on a link that loses one packet in a
// hundred. A kernel without BBR, or without permission to use it, keeps its default.
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
