package hub_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/fuzztest"
	"github.com/psyche-go/psyche/files/hub"
)

// answers is a Hub that gives every request the same answer, with at most one next page.
type answers struct {
	body []byte
	link string
}

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	header := http.Header{"Content-Type": {"application/json"}}
	if a.link != "" && !strings.Contains(r.URL.RawQuery, "cursor") {
		header.Set("Link", a.link)
	}
	return &http.Response{
		StatusCode: http.StatusOK, Status: "200 OK", Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: header, Body: io.NopCloser(bytes.NewReader(a.body)), ContentLength: int64(len(a.body)), Request: r,
	}, nil
}

// FuzzFiles reads listings of a hostile Hub. Every listed name must be valid as a file of a folder.
func FuzzFiles(f *testing.F) {
	f.Add([]byte(`[{"type":"file","path":"config.json","size":2,"oid":"`+strings.Repeat("a", 40)+`"}]`), `<https://hub.test/api/models/org/model/tree/x?cursor=2>; rel="next"`)
	f.Add([]byte(`[{"type":"file","path":"a/b.safetensors","size":2,"oid":"`+strings.Repeat("a", 40)+`","lfs":{"oid":"`+strings.Repeat("b", 64)+`","size":9}}]`), "")
	f.Add([]byte(`[{"type":"file","path":"../x","size":-2,"oid":""}]`), `<ftp://elsewhere>; rel=next`)
	fuzztest.Run(f, func(t *testing.T, body []byte, link string) {
		c, err := hub.New(hub.Options{Endpoint: "https://hub.test", CacheDir: t.TempDir(), Transport: answers{body, link}, Attempts: 1})
		if err != nil {
			t.Fatal(err)
		}
		files, err := c.Files(t.Context(), repo, strings.Repeat("c", 40))
		if err != nil && !errors.Is(err, hub.ErrProtocol) && !errors.Is(err, hub.ErrTooLarge) && !errors.Is(err, hub.ErrInvalidName) {
			t.Fatalf("error %v", err)
		}
		seen := map[string]bool{}
		for _, file := range files {
			if file.Size < 0 || file.Path == "" || strings.HasPrefix(file.Path, "/") || strings.Contains("/"+file.Path+"/", "/../") || seen[file.Path] {
				t.Errorf("lists %+v", file)
			}
			seen[file.Path] = true
		}
	})
}
