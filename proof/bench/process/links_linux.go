package process

import (
	"errors"
	"fmt"
	"time"

	"github.com/psyche-go/psyche/proof/e2e/netlab"
)

// Links makes so many places, every one behind a link with a delay one way and, unless it is 0, a rate
// in bits a second. end takes them away again. It returns ErrNoLinks where that cannot be had.
func Links(delay time.Duration, rate int64, count int) (places []Place, end func() error, err error) {
	lab, err := netlab.New(1)
	if err != nil {
		return nil, nil, noLinks(err)
	}
	for range count {
		host, err := lab.Add(netlab.Link{Delay: delay, Rate: rate})
		if err != nil {
			return nil, nil, errors.Join(noLinks(err), lab.Close())
		}
		places = append(places, Place{Address: host.Address().String(), Wrap: host.Wrap})
	}
	return places, lab.Close, nil
}

func noLinks(err error) error {
	if errors.Is(err, netlab.ErrUnsupported) {
		return fmt.Errorf("%w: %w", ErrNoLinks, err)
	}
	return err
}
