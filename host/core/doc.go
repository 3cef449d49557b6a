// Package core is the host of one run as a value: what it does with signed actions, with
// connections that come and go, and with time. It has no clock, goroutine, disk or network.
// The TCP server, the simulator, the host in memory and the hosts of tests that lie put
// theirs around it, so that what the simulator checks is what runs.
//
// A Host is driven like this, by one goroutine:
//
//	h.Submit(now, action, from, answer) // for each action that came, its signature verified
//	h.Tick(now)                         // whoever is gone, and whatever is due
//	records, err := h.Ready()           // the caller makes them durable
//	h.Advance(now, publish)             // they are: publishes, then answers
//	h.Sleep(now, beat)                  // until then nothing is due
//
// The order is fixed here and nowhere else: what a host accepted is durable before anybody
// sees it, and it is published before whoever did it is answered, so that a client that was answered
// finds what it did. A caller has nothing to publish or to answer before Advance.
//
// The caller owns what differs between hosts: sockets and what strangers may do with them,
// where records go, what an update looks like on the wire, and who may talk to it.
package core
