//go:build !linux

package p2p

import "net"

// pace is for Linux only.
func pace(net.Conn) {}
