// Package liar is a host of a run, for tests only, that does not tell the truth. It speaks the
// protocol of package net/frame well enough for real clients, keeps no journal, and does one
// of a few things that no honest host does.
//
//	host, err := liar.Listen(liar.Options{Genesis: genesis, Attack: liar.Fork, After: 2})
//	host.Addr()
package liar
