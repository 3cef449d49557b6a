// Package audits is what members keep of the newest rounds to check each other's results, and what
// they hand each other for that. docs/audit.md has the rules.
//
// Past has the rounds: which results are held, whose, and from which step each says that it goes
// on. Depot has their bytes, whatever they weigh. Openings has what trainers show of results: the
// own ones, and those of others that are looked at; it answers whoever asks, since the roots in
// results determine the bytes of an opening. Dice decide which result a member looks at.
//
// Past is used by the loop of a client. All else may be used from any goroutine.
package audits
