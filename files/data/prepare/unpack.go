package prepare

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// maxWindow limits the window of a zstd stream: the default limit of zstd --long.
const maxWindow = 128 << 20

// unpack returns the content of a file, decompressed if the file's name has the ending of a
// compression, and a function that closes it. maxWindow limits the window of zstd. The formats LZ4
// and Brotli limit their windows to 8 MiB and 16 MiB.
func unpack(file *os.File) (from io.Reader, end func(), err error) {
	switch path.Ext(strings.ToLower(file.Name())) {
	case ".gz":
		unzip, err := gzip.NewReader(file)
		if err != nil {
			return nil, nil, err
		}
		return unzip, func() {}, nil
	case ".zst":
		decoder, err := zstd.NewReader(file, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, nil, err
		}
		return decoder, decoder.Close, nil
	case ".lz4":
		return lz4.NewReader(file), func() {}, nil
	case ".br":
		return brotli.NewReader(file), func() {}, nil
	}
	return file, func() {}, nil
}

// capped is a reader that fails if more than maxDocument bytes, plus one buffer, are read between two
// calls of reset.
type capped struct {
	from io.Reader
	left int64
}

func (c *capped) reset() { c.left = maxDocument + 1<<20 }

func (c *capped) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, fmt.Errorf("the next text is longer than %d bytes; split it", maxDocument)
	}
	n, err := c.from.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}
