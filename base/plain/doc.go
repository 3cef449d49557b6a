// Package plain makes untrusted text safe to print on a terminal. For example, a run's definition
// could contain control sequences that clear the screen or write to the clipboard.
//
// Text escapes unprintable characters. CheckName validates display names.
package plain
