// Package secret normalizes keys and tokens from environment variables and files.
package secret

import "strings"

// Trim removes spaces, newlines and a byte order mark around a key or token. Editors, echo and
// secret stores add them, and no key contains them. Use it for every variable and every text file
// with a secret, but not for raw bytes of a key.
func Trim(text string) string {
	return strings.TrimSpace(strings.TrimPrefix(text, "\ufeff"))
}
