// Package otlp sends telemetry of a process to an OpenTelemetry collector over HTTP, with
// OpenTelemetry's library: periodic metrics (Board, Gathered), logs (Logs), and traces derived from
// the event log (Traces).
//
// No caller waits for the collector. Data waits in queues of a fixed length, and is dropped if a
// queue is full. Each sender runs until its Stop is called.
package otlp
