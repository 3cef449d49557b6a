//go:build !linux

package main

import "github.com/psyche-go/psyche/proof/bench/process"

// makeLinks returns process.ErrNoLinks: only Linux has network namespaces.
func (r row) makeLinks(*world) (links, error) { return links{}, process.ErrNoLinks }
