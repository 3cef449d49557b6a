// Package netlab emulates networks on one machine, for tests. Its hosts are Linux network
// namespaces, connected by links with a delay, a loss rate and a bandwidth. Links can be cut.
//
//	lab, err := netlab.New(seed)
//	defer lab.Close()
//	host, err := lab.Add(netlab.Link{Delay: 100 * time.Millisecond, LossPerMille: 10, Rate: 20e6})
//	program, arguments := host.Wrap("psyche-client", "train", …)
//	command := exec.Command(program, arguments...) // in the namespace
//	host.Cut(true)
//
// A host's only connection is a TUN device, whose packets this process forwards. It reads each
// packet, delays it as the link would, drops some packets, and passes the packet to the destination
// host. Links therefore need only TUN and namespaces from the kernel, and not tc's netem, a module
// that many kernels lack. Making namespaces requires root and the ip command. If this is not
// possible, New and Add return ErrUnsupported.
//
// The rate of a link may differ between the two directions. Packets wait in a FIFO queue or in fair
// queues like fq_codel. The size of a queue is the time in which it empties at the rate of the link. A
// queue of one second is typical of a router with bufferbloat.
//
// AddThis makes the machine itself a host, and Reach lets a host use a service on the machine's
// loopback address.
//
// A Guarded host is behind a firewall like that of home routers: it drops packets from addresses
// and ports to which the destination port has not sent before. Addresses are not translated.
package netlab
