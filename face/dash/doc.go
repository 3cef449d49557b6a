// Package dash implements the dashboard, a web page that shows runs. A Handler serves the embedded
// page and its data as JSON. It is read-only.
//
//	page := dash.New(func() []dash.Run { … }, verifier)
//	mux.Handle("GET /", page)
//
// Package face/dash/history computes a run's history from its log, and face/dash/follow follows
// growing logs. Package face/dash/reported collects members' reports of their own training.
//
// Names in runs are untrusted. The page inserts every text into the document as text, its content
// security policy allows only its own scripts, and commands to copy contain only names without
// special characters for a shell.
package dash
