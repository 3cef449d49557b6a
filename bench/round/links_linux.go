package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/psyche-go/psyche/e2e/netlab"
)

// newLinks makes one place for the server and each client, every one behind a link with a
// delay. end takes them away again. It returns errNoLinks where that cannot be had.
func newLinks(delay time.Duration, count int) (places []place, end func() error, err error) {
	lab, err := netlab.New(1)
	if err != nil {
		return nil, nil, noLinks(err)
	}
	for range count {
		host, err := lab.Add(netlab.Link{Delay: delay})
		if err != nil {
			return nil, nil, errors.Join(noLinks(err), lab.Close())
		}
		places = append(places, place{address: host.Address().String(), wrap: host.Wrap})
	}
	return places, lab.Close, nil
}

func noLinks(err error) error {
	if errors.Is(err, netlab.ErrUnsupported) {
		return fmt.Errorf("%w: %w", errNoLinks, err)
	}
	return err
}
