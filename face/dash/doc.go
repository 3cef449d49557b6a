// Package dash implements the dashboard, a web page that shows runs. New returns an http.Handler
// that serves the embedded page, and its data as JSON. The dashboard is read-only.
//
//	page := dash.New(func() []dash.Run { … }, verifier)
//	mux.Handle("GET /", page)
//
// Package face/dash/history computes a run's history from its log, and face/dash/follow follows
// growing logs. Package face/dash/reported collects the data that members report about their
// training.
//
// Names in runs are untrusted. The page inserts every text into the document as text, its content
// security policy allows only its own scripts, and commands to copy contain only names without
// special characters for a shell.
package dash
