// Package dash is the page that shows runs to people: a Handler answers with the page, which is
// embedded, and with what it shows, as JSON. It reads and never changes anything.
//
//	page := dash.New(func() []dash.Run { … }, verifier)
//	mux.Handle("GET /", page)
//
// Where a run's history comes from is the business of face/dash/history (what is told of a log) and
// face/dash/follow (logs that grow); what members say of their own training, of face/dash/reported.
//
// Names in runs are hostile: the page puts every text into the document as text, its policy allows
// no script but its own, and a command to copy is only made of names that a shell takes for names.
package dash
