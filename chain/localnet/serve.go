package localnet

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"
)

// Limits of HTTP. WebSockets and answers may take longer.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
	maxHeader     = 16 << 10
)

// Serve serves the endpoint on listeners until the context ends, and closes them.
func (e *Endpoint) Serve(ctx context.Context, listeners ...net.Listener) error {
	web := &http.Server{Handler: e, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader}
	ended := make(chan error, len(listeners))
	for _, l := range listeners {
		go func() { ended <- web.Serve(l) }()
	}
	stop := context.AfterFunc(ctx, func() { _ = web.Close() })
	defer stop()
	var errs []error
	for range listeners {
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			errs = append(errs, err)
			_ = web.Close()
		}
	}
	e.closeSockets()
	return errors.Join(errs...)
}
