// Command cheater is a cheating member of a run on a server, for tests only. It is an altered client
// (package altered) with the trainer of package cheat. With -closed it does not open its results, and
// with -victim it accuses a member after each round.
//
//	cheater -server 127.0.0.1:39405 -run e2e -key key.json -events events.jsonl -attack negated
package main
