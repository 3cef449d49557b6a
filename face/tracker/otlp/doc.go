// Package otlp sends what a process does to an OpenTelemetry collector, over HTTP, with
// OpenTelemetry's own library: figures from time to time (Board, Gathered), logs (Logs), and
// traces that are made from the event log (Traces).
//
// Nothing of it waits for the collector: what is to be sent lies in queues of a fixed length,
// and what finds no room is dropped. Each of them ends with the Stop that it returns.
package otlp
