package main

import (
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/proof/e2e/netlab"
	"github.com/psyche-go/psyche/proof/testbed"
)

// makeLinks returns the places of a row in which one member has a slow link. It returns
// testbed.ErrNoLinks if links cannot be made.
func (r row) makeLinks(w *world) (l links, err error) {
	lab, err := netlab.New(1)
	if err != nil {
		return l, fmt.Errorf("%w: %w", testbed.ErrNoLinks, err)
	}
	slow := netlab.Link{Delay: slowDelay, Rate: slowRate, Queue: netlab.Fair}
	if r.has("link", "FIFO") {
		slow.Queue, slow.Buffer = netlab.FIFO, slowQueue
	}
	here, err := lab.AddThis(netlab.Link{Delay: slowDelay})
	if err != nil {
		return l, errors.Join(fmt.Errorf("%w: %w", testbed.ErrNoLinks, err), lab.Close())
	}
	far, err := lab.Add(slow)
	if err != nil {
		return l, errors.Join(fmt.Errorf("%w: %w", testbed.ErrNoLinks, err), lab.Close())
	}
	for _, service := range w.serviceURLs() {
		port, err := portOf(service)
		if err == nil {
			err = far.Reach(port)
		}
		if err != nil {
			return l, errors.Join(err, lab.Close())
		}
	}
	return links{
		here: testbed.Place{Address: here.Address().String()},
		far:  testbed.Place{Address: far.Address().String(), Wrap: far.Wrap},
		end:  lab.Close,
	}, nil
}
