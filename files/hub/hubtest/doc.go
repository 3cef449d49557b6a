// Package hubtest is a Hugging Face Hub in memory, for tests: repositories with commits,
// LFS storage behind a second host, access tokens, and faults on purpose.
//
// The main type is Server:
//
//	s := hubtest.New()
//	defer s.Close()
//	s.Tokens["hf_write"] = true // may write
//	s.Put("org/name", map[string][]byte{"config.json": config})
//	// s.URL is the endpoint
//
// Faults are injected by Server.Intercept, which sees every request of either host first.
// The program in folder cmd serves one until it is interrupted, for clients in other
// languages.
package hubtest
