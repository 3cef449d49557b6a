package dash

import "github.com/psyche-go/psyche/face/dash/talk"

// ShownRun is the answer of /api/run.
type ShownRun = shownRun

// Answers are the answers of the API, by their names in its description.
var Answers = map[string]any{"Runs": shownRuns{}, "Run": shownRun{}, "Events": shownEvents{}, "Question": talk.Question{}, "Answer": talk.Answer{}}

// PackIndex returns the compressed page, which a second call with the same content does not compress again.
var PackIndex = (*Page).packIndex

// ReadVerifier reads the files of a verifier.
var ReadVerifier = readVerifier

// MaxSavedLog is for the tests from outside the package.
const MaxSavedLog = maxSavedLog
