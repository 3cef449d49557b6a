// Package localnet implements a Solana chain with one node in memory, for tests, development and
// demonstrations. Ledger is the chain itself: accounts, transactions, slots and forks. It has no
// clock and no network. Server advances the time. Its Endpoints provide the interface of a real
// node: JSON-RPC over HTTP, subscriptions over WebSocket.
//
//	ledger := localnet.NewLedger(localnet.Config{Start: time.Now()})
//	server := localnet.NewServer(ledger, localnet.Options{Slot: 400 * time.Millisecond})
//	go server.Run(ctx)
//	http.Serve(listener, server.Endpoint())
//
// The chain has the system program, the compute budget, the upgradeable loader and the programs
// that it loads, with the rules, fees and limits of the public chains. It has no votes, stakes,
// leaders, epochs that end, address lookup tables, durable nonces or calls between programs.
//
// Tests can make endpoints faulty with Faults, and remove slots with Rollback, as forks of a public
// chain do.
//
//	server := localnet.NewServer(ledger, localnet.Options{})
//	good, bad := server.Endpoint(), server.Endpoint()            // each an http.Handler
//	bad.SetFaults(localnet.Faults{Lag: 5, Lost: 0.3})
//	err := server.Rollback(3, false)                             // 3 slots, and nothing lands again
//
// Each account keeps the versions that a view shows, at most one per slot: a run's account that is
// written in every slot takes 27 MB. A transaction that writes to it takes 0.45 ms on two cores of
// a server (go test ./chain/localnet -run '^$' -bench .).
//
// testdata/litesvm contains a history of 103 transactions, including a deployment, with the results
// of litesvm 1.5.0, which is built on the code of the public chains. Tests require the same errors,
// compute units, logs, return data and accounts. litesvm differs in two points, which are not
// compared: it allows a call of a program in the slot of its deployment, and takes no fee if a
// transaction's program does not exist. If a program accesses foreign memory, only the beginning of
// the log line is compared.
//
// If Node and litesvm are installed, a test also compares random transactions; 20,000 transactions
// of five seeds had no difference:
//
//	go test ./chain/localnet -run Random -litesvm <folder>/node_modules -transactions 4000 -seed 2
package localnet
