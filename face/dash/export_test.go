package dash

// ShownRun is the answer of /api/run.
type ShownRun = shownRun
