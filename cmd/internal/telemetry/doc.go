// Package telemetry implements the flags for sending metrics, logs and traces of a process to an
// OpenTelemetry collector (package face/tracker/otlp), and the running senders.
//
// Flags.Start starts the senders. Then the process logs to Logger, and registers its metrics (Board,
// Gathered) and event logs (Watch). Close sends the remaining data.
package telemetry
