// Package frame is the protocol between a client and the TCP host of runs: frames, and
// the bytes of each message.
//
// A frame is the length of what follows (4 bytes, big endian), one byte of Type and the
// payload. Reader and Append are the two halves. Frames travel inside TLS (package
// secure). The conversation of a client that takes part in a run, or only watches it:
//
//	host                          client
//	Challenge                 →
//	                          ←   Hello       (run, its hash, role, addresses; signed over the challenge
//	                                          and the key that the host has proved with TLS)
//	Welcome, Peers, State     →               or Refusal, and the host hangs up
//	                          ←   Submit      (request id, signed action)
//	Ack                       →               (request id, coordinator.Code, 0 if accepted)
//	                          ←   Hello       (again, with new addresses and a higher sequence)
//	StateDelta, PeersDelta    →               whenever they changed; or State, Peers to a client
//	                                          that is too far behind: newest wins
//	                          ←   ReadLog     (offset)
//	Log                       →               (offset, size, bytes of the run's journal)
//	                          ←   ReadModel   (offset)
//	Model                     →               (offset, size, bytes of the model that the run begins with,
//	                                          as package parcel has it; size 0: it has none)
//	Ping                      →               every PingInterval
//	                          ←   Pong
//	Refusal                   →               before the host hangs up by itself
//
// A client that makes a run says so in its Hello:
//
//	Challenge                 →
//	                          ←   Hello       (role RoleCreator, the new run)
//	Welcome                   →               the host's key, which is part of the first state
//	                          ←   Create      (the run's first state, signed)
//	Ack                       →               the run is on the host's disk; or Refusal
//
// A client that asks which runs the host has names none:
//
//	Challenge                 →
//	                          ←   Hello       (role RoleLister)
//	Runs                      →               and the host hangs up
//
// Integers are little endian except the length. Every decoder is strict: one encoding per
// value (deltas aside), no trailing bytes, bounds checked before anything is allocated.
package frame
