package dash

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"
)

// kinds maps the extensions of the page's files to their content types.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".png": "image/png", ".svg": "image/svg+xml",
	".json": "application/json",
}

// file is one of the page's files, uncompressed and compressed.
type file struct {
	kind, etag    string
	plain, packed []byte
}

// newFile loads and compresses one of the page's files.
func newFile(name string) (*file, error) {
	content, err := asset(name)
	if err != nil {
		return nil, err
	}
	return packed(kinds[path.Ext(name)], content)
}

// packed compresses a file.
func packed(kind, content string) (*file, error) {
	var packed bytes.Buffer
	to, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	_, err = io.WriteString(to, content)
	if err = errors.Join(err, to.Close()); err != nil {
		return nil, err
	}
	return &file{kind: kind, etag: fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(content))), plain: []byte(content), packed: packed.Bytes()}, nil
}

// ServeHTTP implements http.Handler. It sends no content to a browser that already has the file.
func (f *file) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Type", f.kind)
	header.Set("ETag", f.etag)
	header.Set("Vary", "Accept-Encoding")
	switch {
	case r.Header.Get("If-None-Match") == f.etag:
		w.WriteHeader(http.StatusNotModified)
	case strings.Contains(r.Header.Get("Accept-Encoding"), "gzip"):
		header.Set("Content-Encoding", "gzip")
		_, _ = w.Write(f.packed) // fails if the reader has disconnected
	default:
		_, _ = w.Write(f.plain) // fails if the reader has disconnected
	}
}
