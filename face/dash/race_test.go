//go:build race

package dash_test

const raceEnabled = true
