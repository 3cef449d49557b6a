// Package backendtest checks that a backend keeps the contract of package backend.
//
// A test of an implementation calls Run with a function that starts a host:
//
//	backendtest.Run(t, func(t *testing.T, s backendtest.Setup) backendtest.Attach { … })
package backendtest
