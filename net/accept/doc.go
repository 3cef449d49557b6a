// Package accept accepts and serves connections of clients that have not identified themselves yet.
// The host of runs and the data server share it.
//
// Acceptor accepts connections while its admission.Limiter has capacity for unidentified clients.
// Conn is the server's end of a connection. It transfers frames (net/frame) inside TLS
// (net/secure), bounded in size and time, until the end of a context interrupts it. The server's
// Protocol provides the errors for a client's mistakes, and the close frame that reports them to
// the client.
package accept
