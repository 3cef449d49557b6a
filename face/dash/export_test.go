package dash

// ShownRun is the answer of /api/run.
type ShownRun = shownRun

// ReadVerifier reads the files of a verifier.
var ReadVerifier = readVerifier
