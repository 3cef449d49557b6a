// Package recipe chooses the settings of a run: its length, batch, optimizer, learning rate and time limits.
//
//	r, err := recipe.Of(recipe.Request{Name: "poems", Host: "192.0.2.7", Port: 39405, Friends: 3, Link: 20, Hours: 1, …})
//	err = os.WriteFile("state.toml", r.StateTOML(), 0o644)
//
// The function table lists every chosen value with its reason. The reason names the measurement
// behind the value, or states that there is none. Of does no I/O and always returns the same recipe for
// the same request.
package recipe
