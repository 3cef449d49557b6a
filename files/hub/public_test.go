package hub_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/psyche-go/psyche/files/hub"
)

// TestOnlyPublic checks a client without a token that uses a cache that a client with a token has
// filled.
func TestOnlyPublic(t *testing.T) {
	s := newServer(t)
	dir := t.TempDir()
	client := func(change func(*hub.Options)) *hub.Client {
		return newClient(t, s, func(o *hub.Options) {
			o.Token, o.CacheDir = "", dir
			if change != nil {
				change(o)
			}
		})
	}
	offline := func(o *hub.Options) { o.Offline = true }
	files := map[string][]byte{"config.json": []byte("{}"), "model.safetensors": make([]byte, 5000)}
	commits := map[string]string{}
	for _, repo := range []string{"org/private", "org/gated", "org/public"} {
		s.Put(repo, files)
		s.Restrict(repo, repo == "org/private", false)
		got, err := client(func(o *hub.Options) { o.Token = "hf_write" }).Snapshot(t.Context(), repo, hub.SnapshotOptions{})
		if err != nil {
			t.Fatal(err)
		}
		commits[repo] = got.Commit
	}
	s.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/org/gated/resolve/") && r.Header.Get("Authorization") == "" {
			w.Header().Set("X-Error-Code", "GatedRepo")
			w.WriteHeader(http.StatusForbidden)
			return true
		}
		return false
	})
	use := func(c *hub.Client, repo, revision string) error {
		_, err := c.Snapshot(t.Context(), repo, hub.SnapshotOptions{Revision: revision, Public: true})
		return err
	}
	unreachable := func(o *hub.Options) { o.Endpoint = "http://127.0.0.1:1" }
	for _, test := range []struct {
		name   string
		change func(*hub.Options)
		repo   string
		branch bool
		denied bool
	}{
		{"private, by commit", nil, "org/private", false, true},
		{"private, by branch", nil, "org/private", true, true},
		{"private, also with a token", func(o *hub.Options) { o.Token = "hf_write" }, "org/private", false, true},
		{"private, offline", offline, "org/private", false, true},
		{"private, nobody answers", unreachable, "org/private", false, true},
		{"conditions, by commit", nil, "org/gated", false, true},
		{"conditions, by branch", nil, "org/gated", true, true},
		{"public, offline and never asked", offline, "org/public", false, true},
		{"public", nil, "org/public", false, false},
		{"public, by branch", nil, "org/public", true, false},
		{"public when it was asked", offline, "org/public", false, false},
		{"public when it was asked, nobody answers", unreachable, "org/public", false, false},
	} {
		revision := commits[test.repo]
		if test.branch {
			revision = "main"
		}
		err := use(client(test.change), test.repo, revision)
		if denied := errors.Is(err, hub.ErrNotPublic) || errors.Is(err, hub.ErrUnauthorized); denied != test.denied || !denied && err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
	}
	s.Restrict("org/public", true, false)
	if err := use(client(nil), "org/public", commits["org/public"]); !errors.Is(err, hub.ErrNotPublic) {
		t.Errorf("repository made private: %v", err)
	}
	for repo, want := range map[string]bool{"org/private": false, "org/gated": false, "org/public": false} {
		if err := client(func(o *hub.Options) { o.Token = "hf_write" }).CheckPublic(t.Context(), repo, commits[repo]); (err == nil) != want {
			t.Errorf("%s: got %v; want (err == nil) == want", repo, err)
		}
	}
}
