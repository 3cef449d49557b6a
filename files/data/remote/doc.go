// Package remote reads a run's data from a data server (package files/data/serve).
//
// Open connects; the Client it returns is a data.Provider. It has one connection, asks for
// one batch at a time, those for audits last, and connects again by itself, with growing and random pauses, when
// the connection is lost: so a server that is started again is not noticed, unless it takes
// longer than Options.Timeout, and then the call fails with an error that passes.
//
// Errors that do not pass, like another server key than the one that was asked for, another
// run or sequences of another length, wrap data.ErrUnusable or data.ErrOtherData.
package remote
