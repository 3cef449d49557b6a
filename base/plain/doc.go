// Package plain writes texts, parts of which others chose, so that a terminal shows all of them and obeys
// none: a run's definition can name a folder that clears the screen, or fills the clipboard.
//
// CheckName says which texts are names that people are shown.
package plain
