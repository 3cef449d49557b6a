// Package frame implements the protocol between a client and the TCP host of runs: the framing and
// the encoding of each message.
//
// A frame is the length of the rest (4 bytes, big endian), one byte of Type and the payload. Reader
// reads frames, and Append writes them. Frames travel inside TLS (package secure). A client that
// participates in a run, or only observes it, has this conversation:
//
//	host                          client
//	Challenge                 →
//	                          ←   Hello       (run, its hash, role, addresses; signed over the challenge
//	                                          and the key that the host has proved with TLS)
//	Welcome, Peers, State     →               or Refusal, and the host hangs up. Welcome has the version that
//	                                          the host requires of clients that take part
//	                          ←   Submit      (request id, signed action)
//	Ack                       →               (request id, coordinator.Code, 0 if accepted)
//	                          ←   Hello       (again, with new addresses and a higher sequence)
//	StateDelta, PeersDelta    →               after each change; or State, Peers to a client
//	                                          that is too far behind, newest only
//	                          ←   ReadLog     (offset)
//	Log                       →               (offset, size, bytes of the run's journal)
//	                          ←   ReadModel   (offset, digest; zero: the run's first model)
//	Model                     →               (offset, size, bytes of the model,
//	                                          in the encoding of package modelarchive; size 0: none)
//	Ping                      →               every PingInterval
//	                          ←   Pong
//	Refusal                   →               before the host closes the connection
//
// A client that creates a run:
//
//	Challenge                 →
//	                          ←   Hello       (role RoleCreator, the new run)
//	Welcome                   →               the host's key, which is part of the first state
//	                          ←   Create      (the run's first state, signed)
//	Ack                       →               the run is on the host's disk; or Refusal
//
// A client that lists the host's runs, and names none:
//
//	Challenge                 →
//	                          ←   Hello       (role RoleLister)
//	Runs                      →               and the host hangs up
//
// Integers are little endian except the length. Every decoder is strict: each value has one
// encoding (except deltas), trailing bytes are errors, and bounds are checked before memory is
// allocated.
package frame
