// Package telemetry has the flags by which a process sends figures, logs and traces to an
// OpenTelemetry collector (package face/tracker/otlp), and what is on its way there.
//
// Flags.Start begins. Then the process logs to Logger, and hands over what it has: a board or
// what Prometheus reads (Board, Gathered), and event logs (Watch). Close sends what waits.
package telemetry
