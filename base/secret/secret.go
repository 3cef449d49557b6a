// Package secret cleans keys and tokens that come from environment variables and files.
package secret

import "strings"

// Trim returns a key or token without blanks, newlines and a byte order mark around it: editors, echo and secret stores
// add them, and no key has them. Every variable and every text file with a secret is read through it. Raw bytes of a
// key are not.
func Trim(text string) string {
	return strings.TrimSpace(strings.TrimPrefix(text, "\ufeff"))
}
