// Package accept is what a server does with connections of clients that it does not know yet,
// whatever it serves: a host of runs and a data server share it.
//
// Acceptor accepts connections, as long as its admission.Limiter has a place for one that has not said
// who it is. Conn is the server's end of one: frames (net/frame) inside TLS
// (net/secure), bounded in size and time, until the end of a context interrupts it. What
// a client did wrong, and the farewell that tells it so, are in the words of the server's Protocol.
package accept
