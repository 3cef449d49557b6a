// Command cheater is a cheating member of a run on a server, for tests only. It uses the same
// packages as psyche-client, and joins, loads the model, reads data, witnesses, audits and votes in
// the same way. But its trainer is from package cheat. With -closed it does not open its results,
// and with -victim it accuses a member after each round.
//
//	cheater -server 127.0.0.1:39405 -run e2e -key key.json -events events.jsonl -attack negated
package main
