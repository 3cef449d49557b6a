// Command throttled is a member of a run on a server, for tests only. It uses the same packages as psyche-client
// (package altered). But before it trains or recomputes a batch, it waits for a time for each sequence. It reads
// this time from a file before each sequence, so that a test can change the member's speed.
//
//	throttled -server 127.0.0.1:39405 -run e2e -key key.json -events events.jsonl -each each.txt
package main
