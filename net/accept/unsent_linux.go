package accept

import "golang.org/x/sys/unix"

func limitUnsent(fd uintptr, bytes int) {
	_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, bytes)
}
