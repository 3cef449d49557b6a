//go:build !linux

package p2p

import "net"

// pace does nothing on this system.
func pace(net.Conn) {}
