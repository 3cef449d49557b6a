// Package web reads token files from HTTP servers by range requests.
//
// Open asks every server for the first bytes of its files: the answer says how long a
// file is, whether the server serves ranges at all, and which version of the file it is
// (ETag, else Last-Modified). A Source then reads exactly the bytes of the sequences that
// are asked for (package files/data/tokens numbers them), and Close ends it. Get reads one
// small file whole.
//
// Every later answer must be of the version that was opened, so that a file which is
// replaced during a run is an error, tokens.ErrChanged, instead of other tokens. A server
// that sends neither ETag nor Last-Modified can be held to the length only.
//
// Servers are not trusted. Connecting, the answer's head and its body have deadlines and
// bounds; no more is read than was asked for; what an answer says of itself must agree
// with the request; redirects are few and stay on HTTP, never from https to http.
// What may pass (server errors, overload, broken or late answers) is tried again with
// growing, jittered pauses, or after the server's Retry-After up to MaxRetryAfter, until
// Options.MaxElapsed is over.
package web
