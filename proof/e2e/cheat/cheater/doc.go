// Command cheater is a member of a run on a server that cheats, for tests only. It is made of what
// psyche-client is made of, and joins, loads the model, reads data, witnesses, audits and votes as
// that does; but its trainer is one of package cheat, with -closed it opens nothing,
// and with -victim it accuses a member after each round.
//
//	cheater -server 127.0.0.1:39405 -run e2e -key key.json -events events.jsonl -attack negated
package main
