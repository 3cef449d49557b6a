//go:build !linux

package main

import "github.com/psyche-go/psyche/proof/testbed"

// makeLinks returns testbed.ErrNoLinks: only Linux has network namespaces.
func (r row) makeLinks(*world) (links, error) { return links{}, testbed.ErrNoLinks }
