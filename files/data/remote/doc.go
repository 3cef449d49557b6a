// Package remote reads a run's data from a data server (package files/data/serve).
//
// Open connects and returns a Client, which is a data.Provider. A Client has one connection and
// requests one batch at a time, batches for audits last. If the connection is lost, it reconnects
// with growing, random pauses. So callers notice a restart of the server only if it takes longer
// than Options.Timeout: then the call fails with a temporary error.
//
// Permanent errors, such as an unexpected server key, another run or sequences of another length,
// wrap data.ErrUnusable or data.ErrOtherData.
package remote
