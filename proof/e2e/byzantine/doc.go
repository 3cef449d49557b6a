// Package byzantine implements a Byzantine host of a run, for tests only. It speaks enough of the
// protocol of package net/frame for real clients, keeps no journal, and performs one of several
// attacks.
//
//	host, err := byzantine.Listen(byzantine.Options{Genesis: genesis, Attack: byzantine.Fork, After: 2})
//	host.Addr()
package byzantine
