// Package message implements the protocol between a client and a data server: the encoding of each
// message.
//
// Frames are frames of package net/frame, inside TLS (package net/secure). Their types differ from
// the types of a run's server, so neither accepts messages for the other. The conversation:
//
//	server                        client
//	Challenge                 →
//	                          ←   Hello       (run; signed over the challenge and the server's key)
//	Welcome                   →               (length and number of sequences, the run's hash) or Refusal
//	                          ←   Request     (number, kind, intervals of sequences)
//	Sample, Sample, …         →               (number, index, tokens): one for each sequence, in order;
//	Receipt                   →               (number, hash, signature) after the last of them;
//	                                          or Fingerprint (number, hash), or Denied (number, reason)
//	Refusal                   →               before the server closes the connection
//
// A client sends a Request after the answer to the previous one; the server does not read ahead.
// Integers are little-endian. Every decoder is strict: each value has one encoding, trailing bytes
// are errors, and bounds are checked before memory is allocated.
package message
