//go:build !linux

package testbed

import "fmt"

// Links returns ErrNoLinks: links need Linux namespaces.
func Links(Link, int) (places []Place, end func() error, err error) {
	return nil, nil, fmt.Errorf("%w: this requires network namespaces, which only Linux has", ErrNoLinks)
}
