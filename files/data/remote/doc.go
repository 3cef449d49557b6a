// Package remote is a client of a data server (package files/data/serve), from which it reads a
// run's data.
//
// Open connects and returns a Client, which is a data.Provider. A Client has one connection and
// requests one batch at a time. It requests batches for audits last. If the connection is lost, it
// reconnects with growing, random pauses. Callers notice a restart of the server only if it takes
// longer than Options.Timeout: then the call fails with a temporary error.
//
// Permanent errors, such as an unexpected server key, another run or sequences of another length,
// wrap data.ErrUnusable or data.ErrOtherData.
package remote
