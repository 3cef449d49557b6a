//go:build !race

package server_test

// raceDetector says that the tests run under the race detector.
const raceDetector = false
