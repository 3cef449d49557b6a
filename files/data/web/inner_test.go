package web

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/psyche-go/psyche/base/privatenet"
)

// TestInnerAddressesAreNotRead checks that a run's location cannot name, resolve to, or redirect to
// servers that only this machine can reach. The redirecting server represents a server on the
// Internet.
func TestInnerAddressesAreNotRead(t *testing.T) {
	var asked atomic.Int64
	inner := serve(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		good(w, r)
	})
	byName := strings.Replace(inner, "127.0.0.1", "localhost", 1)
	outside := func(to string) string { return serve(t, http.RedirectHandler(to, http.StatusFound).ServeHTTP) }
	for name, address := range map[string]string{
		"address":               inner,
		"name":                  byName,
		"redirect to address":   outside(inner + "/latest/meta-data/"),
		"redirect to name":      outside(byName),
		"mapped":                strings.Replace(inner, "127.0.0.1", "[::ffff:127.0.0.1]", 1),
		"redirect twice":        outside(outside(byName)),
		"link":                  "http://169.254.169.254/latest/meta-data/",
		"zero, which is itself": strings.Replace(inner, "127.0.0.1", "0.0.0.0", 1),
	} {
		t.Run(name, func(t *testing.T) {
			strict := quick
			strict.Inner = false
			c := newClient(strict)
			defer c.close()
			if strings.HasPrefix(name, "redirect") {
				u, err := url.Parse(address)
				if err != nil {
					t.Fatal(err)
				}
				c.proxies.Store(u.Host, struct{}{}) // may be dialled
				address = strings.Replace(address, "127.0.0.1", "localhost", 1)
				c.proxies.Store(strings.Replace(u.Host, "127.0.0.1", "localhost", 1), struct{}{})
			}
			_, err := c.open(t.Context(), address+"/train.ds", layout)
			if !errors.Is(err, privatenet.ErrInner) {
				t.Errorf("got %v; want error privatenet.ErrInner", err)
			}
		})
	}
	if asked.Load() > 0 {
		t.Errorf("%d requests inside", asked.Load())
	}
	open := newClient(quick)
	defer open.close()
	if _, err := open.open(t.Context(), outside(inner)+"/train.ds", layout); err != nil {
		t.Errorf("with inner networks allowed: %v", err)
	}
}

// TestProxyMayBeInside checks that a server can be reached through the user's proxy, and that the
// proxy does not give access to private servers.
func TestProxyMayBeInside(t *testing.T) {
	var asked atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		good(w, r)
	}))
	defer proxy.Close()
	strict := quick
	strict.Inner = false
	c := newClient(strict)
	defer c.close()
	at, err := url.Parse(proxy.URL)
	if err != nil {
		t.Fatal(err)
	}
	c.transport.Proxy = func(*http.Request) (*url.URL, error) {
		c.proxies.Store(hostPort(at), struct{}{})
		return at, nil
	}
	if _, err := c.open(t.Context(), "http://data.example/train.ds", layout); err != nil || asked.Load() != 1 {
		t.Errorf("%v, %d requests", err, asked.Load())
	}
	if _, err := c.open(t.Context(), "http://169.254.169.254/train.ds", layout); !errors.Is(err, privatenet.ErrInner) || asked.Load() != 1 {
		t.Errorf("%v, %d requests", err, asked.Load())
	}
}

func TestHostPort(t *testing.T) {
	for text, want := range map[string]string{
		"http://proxy": "proxy:80", "https://proxy": "proxy:443", "socks5://proxy": "proxy:1080",
		"http://10.0.0.1:3128": "10.0.0.1:3128", "http://[fd00::1]": "[fd00::1]:80",
	} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := hostPort(u); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
