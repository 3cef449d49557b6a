//go:build !linux

package main

import (
	"fmt"
	"time"
)

// newLinks returns errNoLinks: links with a delay are made of Linux's namespaces.
func newLinks(time.Duration, int) (places []place, end func() error, err error) {
	return nil, nil, fmt.Errorf("%w: only Linux has network namespaces", errNoLinks)
}
