package checkpoint

import (
	"io"
	"os"
	"path/filepath"
)

// Watch is called with the number of bytes of a folder's tensors that were read, and their total.
type Watch func(done, all int64)

// counter counts the bytes read from tensor files.
type counter struct {
	watch     Watch // may be nil
	done, all int64
}

// count starts counting for a folder. It ignores errors of the folder.
func count(dir string, watch Watch) *counter {
	c := &counter{watch: watch}
	if watch == nil {
		return c
	}
	c.all = TensorBytes(dir)
	return c
}

// TensorBytes returns the size of the tensor files of a folder, which is the minimum memory that
// ReadDir needs.
func TensorBytes(dir string) (bytes int64) {
	names, _ := tensorFiles(dir)
	for _, name := range names {
		if info, err := os.Stat(filepath.Join(dir, name)); err == nil {
			bytes += info.Size()
		}
	}
	return bytes
}

// through returns r wrapped so that c counts the bytes read.
func (c *counter) through(r io.Reader) io.Reader {
	if c.watch == nil {
		return r
	}
	return counted{r, c}
}

func (c *counter) add(n int64) {
	if c.done += n; c.watch != nil {
		c.watch(c.done, c.all)
	}
}

type counted struct {
	io.Reader
	counter *counter
}

// Read implements io.Reader. It reads at most pieceSize bytes per call.
func (c counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p[:min(len(p), pieceSize)])
	c.counter.add(int64(n))
	return n, err
}
