package main

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/psyche-go/psyche/proof/testbed"
)

// The slow uplink of one member. Its downlink is not limited, as with most home connections.
const (
	slowRate  = 1_000_000 // bits per second
	slowDelay = 20 * time.Millisecond
	slowQueue = time.Second // time that a full FIFO queue takes to empty
)

// links are the places of a row.
type links struct {
	here testbed.Place // of all other processes
	far  testbed.Place // of the member with the slow link
	end  func() error
}

// serviceURLs returns the URLs of this process's services on loopback.
func (w *world) serviceURLs() []string {
	services := []string{w.hub.URL, w.buckets.Host, w.collector}
	if w.data.URL != "" {
		services = append(services, w.data.URL)
	}
	return services
}

// portOf returns the port of a URL or of HOST:PORT.
func portOf(service string) (int, error) {
	if parsed, err := url.Parse(service); err == nil && parsed.Host != "" {
		service = parsed.Host
	}
	_, port, err := net.SplitHostPort(service)
	if err != nil {
		return 0, fmt.Errorf("port of %q: %w", service, err)
	}
	return strconv.Atoi(port)
}
