//go:build !unix

package checkpoint

import (
	"os"
	"time"
)

// abandonedAfter is how old a folder is that nobody writes any more.
const abandonedAfter = 7 * 24 * time.Hour

// lock does nothing here: age decides.
func lock(*os.File) bool { return true }

// abandoned reports whether a folder is so old that nobody writes it any more.
func abandoned(folder *os.File) bool {
	info, err := folder.Stat()
	return err == nil && time.Since(info.ModTime()) > abandonedAfter
}
