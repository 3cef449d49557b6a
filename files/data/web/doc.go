// Package web reads token files from HTTP servers by range requests.
//
// Open requests the first bytes of all files and returns a Source. The answers show the length of a
// file, whether the server supports ranges, and the version of the file (ETag, or else
// Last-Modified). The Source then reads exactly the bytes of the requested sequences, which package
// files/data/tokens numbers. Close closes it. Get reads one small file completely.
//
// Every later answer must have the version that was opened. A file that is replaced during a run
// therefore gives an error, tokens.ErrChanged, instead of other tokens. If a server sends neither
// ETag nor Last-Modified, only the length is compared.
//
// Servers are not trusted:
//
//   - Connecting, the header of an answer and its body have deadlines and bounds.
//   - A Source reads no more bytes than it requested, and compares the answer with the request.
//   - It follows few redirects, only to HTTP and HTTPS, and never from https to http.
//   - It retries temporary failures (server errors, overload, broken or late answers) with growing,
//     jittered pauses, or after the server's Retry-After up to maxRetryAfter, until
//     Options.MaxElapsed is over.
package web
