package otlp

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
)

// Collector configures the receiver and the sender's identity.
type Collector struct {
	URL     string            // full URL, usually ending in /v1/metrics, /v1/logs or /v1/traces
	Header  string            // value of the Authorization header; empty: none
	Service string            // name of the sending program, such as "psyche-client"
	Labels  map[string]string // labels of everything that is sent
	Logger  *slog.Logger      // for failed pushes; it must not itself write to a collector
}

// Stop sends pending data until its context ends, and stops the sender.
type Stop func(context.Context) error

// timeout limits one push.
const timeout = 10 * time.Second

// scope is the instrumentation scope of metrics, logs and traces.
const scope = "github.com/psyche-go/psyche"

// check validates the address, and sets up logging of the library's errors.
func (c Collector) check() error {
	if u, err := url.Parse(c.URL); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return fmt.Errorf("address %q of an OpenTelemetry collector: want http:// or https://", c.URL)
	}
	var last atomic.Int64
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { // rarely, because pushes are retried
		now := time.Now().Unix()
		if before := last.Load(); now-before >= 60 && last.CompareAndSwap(before, now) {
			c.Logger.Warn("some OpenTelemetry data cannot be sent", "err", err)
		}
	}))
	return nil
}

// headers returns the headers of every request.
func (c Collector) headers() map[string]string {
	if c.Header == "" {
		return nil
	}
	return map[string]string{"Authorization": c.Header}
}

// resource describes the sender.
func (c Collector) resource() *resource.Resource {
	labels := []attribute.KeyValue{attribute.String("service.name", c.Service), attribute.String("service.namespace", "psyche")}
	for _, name := range slices.Sorted(maps.Keys(c.Labels)) {
		labels = append(labels, attribute.String(name, c.Labels[name]))
	}
	return resource.NewSchemaless(labels...)
}
