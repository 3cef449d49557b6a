// Package backend says what a client needs of the host of its run: to see the
// coordinator's state, and to submit actions to it.
//
// A backend is anything with these methods; package client declares the interface:
//
//	Updates() <-chan Update
//	Submit(ctx context.Context, a coordinator.Action) error
//	Announce(ctx context.Context, addrs []string) error
//	Err() error
//	Close() error
//
// The contract, which backendtest.Run checks for every implementation:
//
//   - Updates carries whole states, newest wins: a slow reader misses states in between
//     and never the last one. The first one comes without asking. A reader owns what it
//     received. The channel is closed after Close (then Err is nil) or after a permanent
//     error (then Err says which).
//   - Submit signs the action, and returns once the host has applied it and can no longer
//     lose it (nil), or has refused it (a coordinator.Code, found by errors.Is). ErrDisconnected
//     means that nobody knows: the action may or may not have been applied. Sending it again
//     is safe, because the coordinator refuses a second copy as a duplicate.
//   - Actions of one backend reach the host in the order of the calls to Submit.
//   - Announce tells the other participants the addresses at which this one is reached on
//     the peer-to-peer network. They come back as Update.Peers to everybody, for members
//     and pending clients.
//   - One key has one live backend at a host; a second one is refused with ErrDuplicateKey.
//   - When a participant's backend is gone for the host's grace period, the host withdraws
//     it from the epoch and from the pending list.
//   - Close is idempotent and ends every goroutine of the backend. All methods may be called
//     from any goroutine.
//
// A chain, which does not know who is connected, can keep neither of the promises about one live
// backend and about clients that are gone.
//
// The implementations are host/tcp (a server), chain/solana (a chain), and host/memory (the
// same process, for tests).
package backend
