package testbed

import (
	"errors"
	"fmt"

	"github.com/psyche-go/psyche/proof/e2e/netlab"
)

// Links creates count places, each behind a link. end removes them. It returns ErrNoLinks if that
// is not possible.
func Links(link Link, count int) (places []Place, end func() error, err error) {
	lab, err := netlab.New(1)
	if err != nil {
		return nil, nil, noLinks(err)
	}
	for range count {
		host, err := lab.Add(netlab.Link{Delay: link.Delay, LossPerMille: link.LossPerMille, Rate: link.Rate})
		if err != nil {
			return nil, nil, errors.Join(noLinks(err), lab.Close())
		}
		places = append(places, Place{Address: host.Address().String(), Wrap: host.Wrap, Sent: func() int64 { return host.Traffic().Bytes }})
	}
	return places, lab.Close, nil
}

func noLinks(err error) error {
	if errors.Is(err, netlab.ErrUnsupported) {
		return fmt.Errorf("%w: %w", ErrNoLinks, err)
	}
	return err
}
