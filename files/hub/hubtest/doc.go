// Package hubtest implements an in-memory Hugging Face Hub for tests: repositories with commits,
// LFS storage on a second host, access tokens, and injected faults.
//
// The main type is Server:
//
//	s := hubtest.New()
//	defer s.Close()
//	s.Tokens["hf_write"] = true // may write
//	s.Put("org/name", map[string][]byte{"config.json": config})
//	// s.URL is the endpoint
//
// Server.Intercept receives every request to either host first and can inject faults. The program
// in folder cmd serves a Hub until it is interrupted, for clients in other languages.
package hubtest
