// Package netlab is an internet on one machine, for tests: hosts that are Linux network
// namespaces, joined by links with a delay, a loss, and a rate, each of which may be cut.
//
//	lab, err := netlab.New(seed)
//	defer lab.Close()
//	host, err := lab.Add(netlab.Link{Delay: 100 * time.Millisecond, LossPerMille: 10, Rate: 20e6})
//	program, arguments := host.Wrap("psyche-client", "train", …)
//	command := exec.Command(program, arguments...) // in the namespace
//	host.Cut(true)
//
// A host's only way out is a TUN device whose packets this process carries: it reads what
// a host sends, holds it for as long as the link would take, loses some of it, and hands it
// to the host that it is addressed to. So the links need nothing of the kernel but TUN and
// namespaces, where tc's netem is a module that many kernels lack. Making namespaces needs
// root and the ip command; New and Add return ErrUnsupported where that is not to be had.
//
// The rate of a link may differ between both directions. Packets wait in a FIFO queue or in fair queues
// like fq_codel. The size of a queue is a time at the rate of the link: one second is a bloated router.
//
// AddThis makes the machine itself a host, and Reach lets another host use a service on the machine's loopback address.
//
// A Guarded host stands behind a firewall as home routers have: what comes from an address
// and port to which it has not sent before from the very port that it is for is dropped.
// Addresses are not translated.
package netlab
