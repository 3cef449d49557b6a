// Package audits is what members keep of the newest rounds to check each other's results, and what
// they show each other for that. docs/audit.md has the rules.
//
// Past has the rounds: which results there were, whose, and what was applied. Out of it Case puts
// together what is to be known of one result to audit it, and Claim what its trainer says of it,
// beyond the arithmetic of package audit: which result its momentum goes on from.
//
// Evidence is what a trainer opens, Report what a verifier reveals of its verdict. Shown has the
// own ones and answers who may ask for them; protocol.go has the two protocols, whose bytes are
// documented in docs/p2p.md.
//
// Nothing here runs beside the loop of a client, except that the network's goroutines read Shown.
package audits
