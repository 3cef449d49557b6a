// Package frame is the protocol between a client and the TCP host of a run: frames, and
// the bytes of each message.
//
// A frame is the length of what follows (4 bytes, big endian), one byte of Type and the
// payload. Reader and Append are the two halves. The conversation:
//
//	host                          client
//	Challenge                 →
//	                          ←   Hello       (signed over the challenge; run, addresses)
//	Welcome, State, Peers     →               or Refusal, and the host hangs up
//	                          ←   Submit      (request id, signed action)
//	Ack                       →               (request id, coordinator.Code, 0 if accepted)
//	                          ←   Hello       (again, with new addresses and a higher sequence)
//	State, Peers              →               whenever they changed; newest wins
//	Ping                      →               every PingInterval
//	                          ←   Pong
//	Refusal                   →               before the host hangs up by itself
//
// Integers are little endian except the length. Every decoder is strict: one encoding per
// value, no trailing bytes, bounds checked before anything is allocated.
package frame
