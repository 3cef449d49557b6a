package web

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"time"

	"github.com/psyche-go/psyche/base/privatenet"
)

// dialTime is the time limit for making a connection.
const dialTime = 10 * time.Second

// dial connects to a server at a public address, checked after name resolution, or to a proxy.
func (c *client) dial(ctx context.Context, network, address string) (net.Conn, error) {
	_, isProxy := c.proxies.Load(address)
	dialer := privatenet.Dialer(c.options.Inner || isProxy)
	dialer.Timeout = dialTime
	return dialer.DialContext(ctx, network, address)
}

// proxy returns the proxy in the user's environment for a request, and caches it.
func (c *client) proxy(request *http.Request) (*url.URL, error) {
	at, err := http.ProxyFromEnvironment(request)
	if at != nil {
		c.proxies.Store(hostPort(at), struct{}{})
	}
	return at, err
}

// hostPort returns the address of a proxy.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"https": "443", "socks5": "1080", "socks5h": "1080"}[u.Scheme]
	}
	port = cmp.Or(port, "80")
	return net.JoinHostPort(u.Hostname(), port)
}

// checkHost refuses a private address in a URL. With a proxy, dial would see only the proxy's
// address.
func (c *client) checkHost(u *url.URL) error {
	addr, err := netip.ParseAddr(u.Hostname())
	if err != nil || c.options.Inner || privatenet.Public(addr) {
		return nil
	}
	return fmt.Errorf("%w: %s", privatenet.ErrInner, addr)
}
