// Package credits records whose results counted in the rounds that a client applied, and describes
// the client's checkpoints for people: as model cards.
//
//	ledger.Round(credits.Round{Step: 7, Results: results, Names: names})
//	card := ledger.Card(state, run, step)
package credits
