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

// Collector says where things are sent, and in whose name.
type Collector struct {
	URL     string            // whole: it probably ends in /v1/metrics, /v1/logs or /v1/traces
	Header  string            // value of the Authorization header; empty: none
	Service string            // program that sends, "psyche-client"
	Labels  map[string]string // of everything that is sent
	Logger  *slog.Logger      // for what cannot be sent; it must not write to a collector itself
}

// Stop sends what waits, for as long as its context lasts, and ends it.
type Stop func(context.Context) error

// timeout bounds one push.
const timeout = 10 * time.Second

// scope names what is measured, logged and traced.
const scope = "github.com/psyche-go/psyche"

// check returns what is wrong with the address, and has the library's errors logged.
func (c Collector) check() error {
	if u, err := url.Parse(c.URL); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" {
		return fmt.Errorf("address %q of a collector: want http:// or https://", c.URL)
	}
	var last atomic.Int64
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { // once in a while: it is tried again
		now := time.Now().Unix()
		if before := last.Load(); now-before >= 60 && last.CompareAndSwap(before, now) {
			c.Logger.Warn("something cannot be sent by OpenTelemetry", "err", err)
		}
	}))
	return nil
}

// headers are those of every request.
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
