package otlp

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/psyche-go/psyche/record/event"
)

// Tracer converts events to traces. Each round is a trace. Its spans are the round's phases and the
// process's activities. Each phase outside of rounds is a trace too.
type Tracer struct {
	provider *sdk.TracerProvider
	mu       sync.Mutex
	runs     []*run
}

// Traces starts a Tracer. The functions that Run returns receive the events.
func Traces(ctx context.Context, c Collector) (*Tracer, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(c.URL), otlptracehttp.WithTimeout(timeout), otlptracehttp.WithHeaders(c.headers()))
	if err != nil {
		return nil, fmt.Errorf("OpenTelemetry: %w", err)
	}
	return &Tracer{provider: sdk.NewTracerProvider(sdk.WithBatcher(exporter, sdk.WithExportTimeout(timeout)), sdk.WithResource(c.resource()))}, nil
}

// Stop ends open spans and sends pending data until ctx ends.
func (t *Tracer) Stop(ctx context.Context) error {
	t.mu.Lock()
	for _, r := range t.runs {
		r.end(time.Now())
	}
	t.mu.Unlock()
	return t.provider.Shutdown(ctx)
}

// Run returns a function that processes the events of a run, for event.Log's Watch.
func (t *Tracer) Run(runID string) func(event.Event) {
	r := &run{tracer: t.provider.Tracer(scope), runID: attribute.String("run_id", runID)}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.runs = append(t.runs, r)
	return func(e event.Event) {
		t.mu.Lock()
		defer t.mu.Unlock()
		r.see(e)
	}
}

// run is the open spans of a run.
type run struct {
	tracer trace.Tracer
	runID  attribute.KeyValue
	state  event.State
	round  *opened
	phase  *opened
}

// opened is an open span.
type opened struct {
	trace.Span
	ctx context.Context
}

// open starts a child span of below, or a new trace if below is nil.
func (r *run) open(below *opened, name string, at time.Time, attributes ...attribute.KeyValue) *opened {
	ctx := context.Background()
	if below != nil {
		ctx = below.ctx
	}
	ctx, span := r.tracer.Start(ctx, name, trace.WithTimestamp(at), trace.WithAttributes(append(attributes, r.runID)...))
	return &opened{span, ctx}
}

// end ends the open spans.
func (r *run) end(at time.Time) {
	for _, span := range []*opened{r.phase, r.round} {
		if span != nil {
			span.End(trace.WithTimestamp(at))
		}
	}
	r.phase, r.round = nil, nil
}

func (r *run) see(e event.Event) {
	switch body := e.Body.(type) {
	case event.State:
		r.enter(body, e.Time)
	case event.Trained:
		r.took(e, "train", body.Seconds, step(body.Step), attribute.Float64("loss", float64(body.Loss)), attribute.Int("tokens", body.Tokens))
	case event.ResultsHeld:
		r.took(e, "fetch the last result", body.FetchSeconds, step(body.Step), attribute.Int("held", body.Held), attribute.Int("batches", body.Batches))
	case event.Span:
		r.took(e, body.Part, body.Seconds, step(body.Step))
	case event.Applied:
		r.took(e, "apply", body.Seconds, step(body.Step), attribute.Int("counted", body.Counted), attribute.Int("lost", len(body.Lost)))
	case event.Ready:
		r.took(e, "get the model", body.Seconds, step(body.Step), attribute.String("source", body.Source))
	case event.Evaluated:
		r.took(e, "evaluate", body.Seconds, step(body.Step), attribute.String("task", body.Task))
	case event.Opened:
		r.took(e, "open the result", body.Seconds, step(body.Step), attribute.Int("bytes", body.Bytes))
	case event.Audit:
		r.took(e, "audit", body.Seconds, step(body.Step), attribute.String("trainer", body.Trainer), attribute.String("outcome", body.Outcome))
	case event.Accused:
		r.note(e, step(body.Step), attribute.String("client", body.Client), attribute.String("fault", body.Fault))
	case event.Voted:
		r.note(e, step(body.Step), attribute.String("accused", body.Accused), attribute.Bool("guilty", body.Guilty))
	case event.WitnessSent, event.ResultSent, event.HealthCheckSent, event.Checkpoint, event.Uploaded, event.Joined, event.Rejoined:
		r.note(e)
	case event.Rejected:
		r.note(e, step(body.Step), attribute.String("from", body.From), attribute.String("reason", body.Reason))
	case event.Equivocation:
		r.note(e, step(body.Step), attribute.String("from", body.From))
	case event.Misbehaved:
		r.note(e, attribute.String("peer", body.Peer), attribute.String("fault", body.Fault), attribute.String("detail", body.Detail))
	case event.Desynchronised:
		r.fail(e, body.Reason)
	case event.Failed:
		r.fail(e, body.Error)
		r.end(e.Time)
	case event.Finished:
		r.end(e.Time)
	}
}

func step(n uint32) attribute.KeyValue { return attribute.Int64("step", int64(n)) }

// enter starts and ends rounds and phases.
func (r *run) enter(s event.State, at time.Time) {
	inRound := s.RunState == "RoundTrain" || s.RunState == "RoundWitness"
	sameStep := s.Step == r.state.Step
	if s.RunState == r.state.RunState && (sameStep || !inRound) {
		return
	}
	if r.phase != nil {
		r.phase.End(trace.WithTimestamp(at))
		r.phase = nil
	}
	if !inRound || !sameStep {
		r.end(at)
	}
	r.state = s
	attributes := []attribute.KeyValue{step(s.Step), attribute.Int64("epoch", int64(s.Epoch)), attribute.Int("members", len(s.Members))}
	if inRound && r.round == nil {
		r.round = r.open(nil, "round", at, append(attributes, attribute.Int64("sequences", int64(s.BatchSize)))...)
	}
	if s.RunState != "Finished" {
		r.phase = r.open(r.round, s.RunState, at, attributes...)
	}
}

// below returns the current parent span.
func (r *run) below() *opened {
	if r.round != nil {
		return r.round
	}
	return r.phase
}

// took adds a span for a completed activity.
func (r *run) took(e event.Event, name string, seconds float64, attributes ...attribute.KeyValue) {
	begun := e.Time.Add(-time.Duration(seconds * float64(time.Second)))
	r.open(r.below(), name, begun, attributes...).End(trace.WithTimestamp(e.Time))
}

// note adds an instantaneous event to the current span.
func (r *run) note(e event.Event, attributes ...attribute.KeyValue) {
	if span := r.below(); span != nil {
		span.AddEvent(e.Body.Kind(), trace.WithTimestamp(e.Time), trace.WithAttributes(attributes...))
	}
}

// fail marks the current span as failed.
func (r *run) fail(e event.Event, why string) {
	r.note(e, attribute.String("reason", why))
	if span := r.below(); span != nil {
		span.SetStatus(codes.Error, why)
	}
}
