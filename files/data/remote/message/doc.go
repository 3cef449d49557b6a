// Package message is the protocol between a client and a data server: the bytes of each
// message.
//
// Frames are those of package net/frame, inside TLS (package net/secure);
// their types are other ones than those of a run's server, so that neither takes the other
// for its own kind. The conversation:
//
//	server                        client
//	Challenge                 →
//	                          ←   Hello       (run; signed over the challenge and the server's key)
//	Welcome                   →               (how long sequences are, how many, the run's hash) or Refusal
//	                          ←   Request     (number, kind, batch)
//	Sample, Sample, …         →               (number, index, tokens): one for each index, in order;
//	Receipt                   →               (number, hash, signature) after the last of them;
//	                                          or Fingerprint (number, hash), or Denied (number, reason)
//	Refusal                   →               before the server hangs up by itself
//
// A client sends a Request when the one before is answered; the server reads no further
// before. Integers are little endian. Every decoder is strict: one encoding per value, no
// trailing bytes, bounds checked before anything is allocated.
package message
