// Package backend defines the interface between a client and the host of its run. Through a
// backend, a client receives the coordinator's state and submits actions to it.
//
// A backend is any type with these methods; package node/env declares the interface:
//
//	Updates() <-chan Update
//	Submit(ctx context.Context, a coordinator.Action) error
//	Announce(ctx context.Context, addrs []string) error
//	Err() error
//	Close() error
//
// Every implementation must keep this contract, which backendtest.Run checks:
//
//   - Updates delivers whole states, and newer states replace older ones: a slow reader misses
//     states in between, but never the last one. The first state arrives without a request. The
//     reader owns the states that it received. The channel is closed after Close (then Err returns
//     nil) or after a permanent error (then Err returns it).
//   - Submit signs the action. It returns nil once the host has applied the action and can no
//     longer lose it, or a coordinator.Code (use errors.Is) once the host has refused it.
//     ErrDisconnected means that the result is unknown: the host may or may not have applied the
//     action. Sending it again is safe, because the coordinator refuses a second copy as a
//     duplicate.
//   - Actions of one backend reach the host in the order of the calls to Submit.
//   - Announce publishes the addresses of this participant on the peer-to-peer network. For members
//     and pending clients, all participants receive them in Update.Peers.
//   - A key has one live backend at a host. The host refuses a second backend with ErrDuplicateKey.
//   - If a participant's backend is disconnected for the host's grace period, the host withdraws the
//     participant from the epoch and from the pending list.
//   - Close is idempotent and ends every goroutine of the backend. All methods may be called
//     concurrently.
//
// A chain does not know which clients are connected, so it cannot guarantee a single live backend,
// or the withdrawal of disconnected clients.
//
// The implementations are host/tcp (a server), chain/solana (a chain), and host/memory (the same
// process, for tests).
package backend
