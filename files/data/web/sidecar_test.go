package web

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/data/tokens"
)

// TestSidecarsOnTheWeb serves token files with what may lie beside the first of them.
func TestSidecarsOnTheWeb(t *testing.T) {
	tests := map[string]struct {
		beside string // content of /a.ds.metadata; empty: it is not there
		want   error
		ok     bool
	}{
		"nothing":           {"", nil, true},
		"the same size":     {"tokenizer|2\n16\n", nil, true},
		"another size":      {"tokenizer|4\n8\n", tokens.ErrWrongSize, false},
		"unreadable size":   {"tokenizer|3\n8\n", nil, false},
		"a page of its own": {"<html>not here</html>", nil, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var asked []string
			address := serve(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case strings.HasSuffix(r.URL.Path, ".ds"):
					good(w, r)
				case strings.HasSuffix(r.URL.Path, ".metadata") && test.beside != "":
					http.ServeContent(w, r, "", begun, strings.NewReader(test.beside))
				default:
					asked = append(asked, r.URL.RequestURI())
					http.NotFound(w, r)
				}
			})
			source, err := Open(context.Background(), []string{address + "/a.ds?key=secret", address + "/b.ds"}, layout, quick)
			if err == nil {
				err = source.Close()
				if len(asked) == 0 || asked[len(asked)-1] != "/a.idx?key=secret" {
					t.Errorf("asked for %v", asked)
				}
			}
			if test.ok && err != nil || test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if !test.ok {
				golden.Message(t, name, err)
			}
			if err != nil && strings.Contains(err.Error(), "secret") {
				t.Errorf("the error contains a secret: %v", err)
			}
		})
	}
}

// TestLooksDoNotCountAgainstSidecars serves tokens of two bytes that look like larger ones.
func TestLooksDoNotCountAgainstSidecars(t *testing.T) {
	letters := bytes.Repeat([]byte("a\x00\n\x00"), 2000)
	for beside, want := range map[string]error{"": tokens.ErrWrongSize, "NAME|2": nil, "NAME|4": tokens.ErrWrongSize} {
		address := serve(t, func(w http.ResponseWriter, r *http.Request) {
			switch {
			case strings.HasSuffix(r.URL.Path, ".ds"):
				w.Header().Set("ETag", `"v1"`)
				http.ServeContent(w, r, "", begun, bytes.NewReader(letters))
			case r.URL.Path == "/a.ds.metadata" && beside != "":
				http.ServeContent(w, r, "", begun, strings.NewReader(beside))
			default:
				http.NotFound(w, r)
			}
		})
		o := tokens.Options{SeqLen: 4, TokenSize: 2, Claim: tokens.OfLocation}
		source, err := Open(context.Background(), []string{address + "/a.ds", address + "/b.ds"}, o, quick)
		if err == nil {
			err = source.Close()
		}
		if !errors.Is(err, want) || beside == "" && !strings.Contains(err.Error(), "NAME|2") {
			t.Errorf("sidecars of %q: %v, want %v", beside, err, want)
		}
	}
}

// TestSidecarsThatFailSayNothing lets a server break on everything but the tokens.
func TestSidecarsThatFailSayNothing(t *testing.T) {
	address := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, ".bin") {
			answer(http.StatusServiceUnavailable, "Retry-After", "9")(w, r)
			return
		}
		w.Header().Set("ETag", `"v1"`)
		http.ServeContent(w, r, "", begun, bytes.NewReader(content))
	})
	source, err := Open(context.Background(), []string{address + "/a.bin"}, layout, quick)
	if err != nil {
		t.Fatal(err)
	}
	if err := source.Close(); err != nil {
		t.Error(err)
	}
}
