package hub_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/psyche-go/psyche/base/golden"
	"github.com/psyche-go/psyche/files/hub"
	"github.com/psyche-go/psyche/files/hub/hubtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const repo = "org/model"

// noise is content that does not compress.
func noise(size int, seed uint64) []byte {
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(data)
	return data
}

func model(seed uint64) map[string][]byte {
	return map[string][]byte{
		"config.json":                      []byte(fmt.Sprintf(`{"seed":%d}`, seed)),
		"model-00001-of-00002.safetensors": noise(300_000, seed),
		"model-00002-of-00002.safetensors": noise(50_000, seed+100),
		"original/params.json":             []byte("{}"),
		"empty.txt":                        {},
	}
}

func newServer(t *testing.T) *hubtest.Server {
	s := hubtest.New()
	t.Cleanup(s.Close)
	s.Tokens["hf_write"], s.Tokens["hf_read"] = true, false
	s.PageSize = 2
	return s
}

// newClient returns a client with short pauses between its attempts.
func newClient(t *testing.T, s *hubtest.Server, change ...func(*hub.Options)) *hub.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	t.Cleanup(transport.CloseIdleConnections)
	o := hub.Options{Endpoint: s.URL, CacheDir: t.TempDir(), Token: "hf_write", Pause: time.Millisecond, Transport: transport}
	for _, f := range change {
		f(&o)
	}
	c, err := hub.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func readAll(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		files[filepath.ToSlash(name)] = data
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// sums replaces content that is too large for a byte-by-byte comparison in a report.
func sums(files map[string][]byte) map[string]string {
	short := map[string]string{}
	for path, data := range files {
		short[path] = fmt.Sprintf("%d bytes %x", len(data), sha256.Sum256(data))
	}
	return short
}

func TestSnapshot(t *testing.T) {
	for _, cached := range []bool{false, true} {
		t.Run(fmt.Sprint("small files behind a redirect: ", cached), func(t *testing.T) {
			s := newServer(t)
			s.Cached = cached
			commit := s.Put(repo, model(1))
			c := newClient(t, s)
			var last hub.Progress
			got, err := c.Snapshot(t.Context(), repo, hub.SnapshotOptions{Progress: func(p hub.Progress) { last = p }})
			if err != nil {
				t.Fatal(err)
			}
			if got.Commit != commit || got.Dir != filepath.Join(c.CacheDir, "models--org--model", "snapshots", commit) {
				t.Errorf("snapshot %+v", got)
			}
			if diff := cmp.Diff(sums(s.Files(repo, "main")), sums(readAll(t, got.Dir))); diff != "" {
				t.Error(diff)
			}
			if last.Files != last.AllFiles || last.Bytes != last.AllBytes || last.TransferredBytes != last.Bytes || last.Files != 6 {
				t.Errorf("progress ended at %+v", last)
			}
			if ref, err := os.ReadFile(filepath.Join(c.CacheDir, "models--org--model", "refs", "main")); err != nil || string(ref) != commit {
				t.Errorf("ref %q, %v", ref, err)
			}
			link, err := os.Readlink(filepath.Join(got.Dir, "original", "params.json"))
			if err != nil || !strings.HasPrefix(link, filepath.Join("..", "..", "..", "blobs")) {
				t.Errorf("link %q, %v", link, err)
			}
			if leaks := s.Leaks(); len(leaks) > 0 {
				t.Errorf("the token went to the storage: %v", leaks)
			}
		})
	}
}

// TestSnapshotAsksOnlyForWhatIsMissing covers a second call, a pinned call, a new commit, and a
// selection of files.
func TestSnapshotAsksOnlyForWhatIsMissing(t *testing.T) {
	s := newServer(t)
	first := s.Put(repo, model(1))
	c := newClient(t, s)
	snapshot := func(o hub.SnapshotOptions) (hub.Snapshot, []string) {
		t.Helper()
		before := len(s.Requests())
		got, err := c.Snapshot(t.Context(), repo, o)
		if err != nil {
			t.Fatal(err)
		}
		return got, s.Requests()[before:]
	}
	onlyConfig := func(path string) bool { return path == "config.json" }
	got, _ := snapshot(hub.SnapshotOptions{Match: onlyConfig})
	if files := readAll(t, got.Dir); len(files) != 1 {
		t.Errorf("got %v, want config.json only", slices.Collect(maps.Keys(files)))
	}
	snapshot(hub.SnapshotOptions{})
	if _, asked := snapshot(hub.SnapshotOptions{}); len(asked) != 1 {
		t.Errorf("a cached branch requested %v, want only the commit", asked)
	}
	if _, asked := snapshot(hub.SnapshotOptions{Revision: first}); len(asked) != 0 {
		t.Errorf("a commit that is here asked %v", asked)
	}
	second := s.Put(repo, map[string][]byte{"config.json": []byte(`{"new":1}`)})
	got, asked := snapshot(hub.SnapshotOptions{})
	downloads := slices.DeleteFunc(asked, func(r string) bool { return !strings.Contains(r, "resolve/") })
	if got.Commit != second || len(downloads) != 1 {
		t.Errorf("commit %s, downloads %v: want the changed file only", got.Commit, downloads)
	}
	if old, _ := snapshot(hub.SnapshotOptions{Revision: first}); !bytes.Equal(readAll(t, old.Dir)["config.json"], model(1)["config.json"]) {
		t.Error("the old commit has changed")
	}
}

func TestOffline(t *testing.T) {
	s := newServer(t)
	s.Put(repo, model(1))
	online := newClient(t, s)
	offline := newClient(t, s, func(o *hub.Options) { o.Offline, o.CacheDir = true, online.CacheDir })
	config := func(path string) bool { return path == "config.json" }
	if _, err := offline.Snapshot(t.Context(), repo, hub.SnapshotOptions{}); !errors.Is(err, hub.ErrOffline) {
		t.Errorf("error = %v, want ErrOffline", err)
	}
	if _, err := online.Snapshot(t.Context(), repo, hub.SnapshotOptions{Match: config}); err != nil {
		t.Fatal(err)
	}
	before := len(s.Requests())
	if _, err := offline.Snapshot(t.Context(), repo, hub.SnapshotOptions{Match: config}); err != nil {
		t.Error(err)
	}
	if _, err := offline.Snapshot(t.Context(), repo, hub.SnapshotOptions{}); !errors.Is(err, hub.ErrOffline) {
		t.Errorf("a part of the files: error = %v, want ErrOffline", err)
	}
	if asked := s.Requests()[before:]; len(asked) != 0 {
		t.Errorf("offline, asked %v", asked)
	}
}

// TestSnapshotWithFaults has faulty answers that a download must survive or refuse.
func TestSnapshotWithFaults(t *testing.T) {
	content := func(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/blob/") }
	cut := func(w http.ResponseWriter, data []byte) { // half of the content, with the length of the whole content
		w.Header().Set("Content-Length", fmt.Sprint(len(data)))
		_, _ = w.Write(data[:len(data)/2])
		panic(http.ErrAbortHandler)
	}
	big := model(1)["model-00001-of-00002.safetensors"]
	wrongByte := func(w http.ResponseWriter, r *http.Request) bool {
		if !content(r) {
			return false
		}
		wrong := bytes.Clone(big)
		wrong[7]++
		_, _ = w.Write(wrong)
		return true
	}
	tests := []struct {
		name  string
		times int32 // that the fault happens
		fault func(w http.ResponseWriter, r *http.Request) bool
		want  error
	}{
		{"content is cut twice", 2, func(w http.ResponseWriter, r *http.Request) bool {
			if !content(r) || r.Header.Get("Range") != "" {
				return false
			}
			cut(w, big)
			return true
		}, nil},
		{"storage knows no ranges", 50, func(w http.ResponseWriter, r *http.Request) bool {
			r.Header.Del("Range")
			return false
		}, nil},
		{"one byte is wrong once", 1, wrongByte, nil},
		{"a byte is always wrong", 50, wrongByte, hub.ErrIntegrity},
		{"more than there should be", 50, func(w http.ResponseWriter, r *http.Request) bool {
			if !content(r) {
				return false
			}
			_, _ = w.Write(append(bytes.Clone(big), 1))
			return true
		}, hub.ErrProtocol},
		{"too many requests", 3, func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}, nil},
		{"server errors", 3, func(w http.ResponseWriter, r *http.Request) bool {
			w.WriteHeader(http.StatusBadGateway)
			return true
		}, nil},
		{"this machine's clock is a day late", 3, func(w http.ResponseWriter, r *http.Request) bool {
			now := time.Now().Add(24 * time.Hour).UTC() // the Hub's clock
			w.Header().Set("Date", now.Format(http.TimeFormat))
			w.Header().Set("Retry-After", now.Format(http.TimeFormat))
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}, nil},
		{"an endless pause is asked for", 3, func(w http.ResponseWriter, r *http.Request) bool {
			w.Header().Set("Retry-After", "86400")
			w.WriteHeader(http.StatusTooManyRequests)
			return true
		}, errAny},
		{"connection is cut", 3, func(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }, nil},
		{"other commit than asked for", 50, func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/resolve/") {
				return false
			}
			w.Header().Set("X-Repo-Commit", strings.Repeat("0", 40))
			return true
		}, hub.ErrProtocol},
		{"other hash than listed", 50, func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.Path, "/resolve/") {
				return false
			}
			w.Header().Set("X-Linked-Etag", `"`+strings.Repeat("0", 64)+`"`)
			return true
		}, hub.ErrProtocol},
		{"redirects in a circle", 50, func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, r.URL.Path, http.StatusFound)
			return true
		}, hub.ErrProtocol},
		{"redirect to a file", 50, func(w http.ResponseWriter, r *http.Request) bool {
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
			return true
		}, hub.ErrProtocol},
		{"no JSON", 50, func(w http.ResponseWriter, r *http.Request) bool {
			_, _ = w.Write([]byte("<html>"))
			return true
		}, hub.ErrProtocol},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newServer(t)
			s.Put(repo, map[string][]byte{"model.safetensors": big, "config.json": []byte("{}")})
			var left atomic.Int32
			left.Store(test.times)
			s.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				return left.Add(-1) >= 0 && test.fault(w, r)
			})
			c := newClient(t, s)
			got, err := c.Snapshot(t.Context(), repo, hub.SnapshotOptions{})
			switch {
			case test.want == nil && err != nil:
				t.Fatal(err)
			case test.want == nil:
				if diff := cmp.Diff(sums(s.Files(repo, "main")), sums(readAll(t, got.Dir))); diff != "" {
					t.Error(diff)
				}
			case err == nil || !errors.Is(test.want, errAny) && !errors.Is(err, test.want):
				t.Fatalf("error = %v, want %v", err, test.want)
			default:
				t.Log(err)
				if blob, _ := filepath.Glob(filepath.Join(c.CacheDir, "models--org--model", "snapshots", "*", "model.safetensors")); len(blob) > 0 {
					t.Error("content that was refused is in the cache")
				}
			}
		})
	}
}

var errAny = errors.New("any error")

// TestDownloadGoesOn checks that a second process downloads only the bytes that the first process
// did not download.
func TestDownloadGoesOn(t *testing.T) {
	s := newServer(t)
	big := noise(1<<20, 5)
	s.Put(repo, map[string][]byte{"model.safetensors": big})
	c := newClient(t, s, func(o *hub.Options) { o.Attempts = 1 })
	s.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/blob/") {
			return false
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(big)))
		_, _ = w.Write(big[:700_000])
		panic(http.ErrAbortHandler)
	})
	if _, err := c.Snapshot(t.Context(), repo, hub.SnapshotOptions{}); err == nil {
		t.Fatal("a cut download succeeded")
	}
	var asked atomic.Value
	s.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.HasPrefix(r.URL.Path, "/blob/") {
			asked.Store(r.Header.Get("Range"))
		}
		return false
	})
	var last hub.Progress
	got, err := c.Snapshot(t.Context(), repo, hub.SnapshotOptions{Progress: func(p hub.Progress) { last = p }})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(readAll(t, got.Dir)["model.safetensors"], big) {
		t.Error("wrong content")
	}
	if asked.Load() == "" || last.TransferredBytes >= 1<<20 || last.Bytes != last.AllBytes {
		t.Errorf("asked for %q, progress %+v", asked.Load(), last)
	}
}

// TestBranchMovesMidway commits between the listing and the download. The snapshot must be the
// listed commit.
func TestBranchMovesMidway(t *testing.T) {
	s := newServer(t)
	first := s.Put(repo, model(1))
	moved := false
	s.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/tree/") && !moved {
			moved = true
			s.Put(repo, model(2))
		}
		return false
	})
	got, err := newClient(t, s).Snapshot(t.Context(), repo, hub.SnapshotOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.Commit != first || !bytes.Equal(readAll(t, got.Dir)["config.json"], model(1)["config.json"]) {
		t.Errorf("commit %s, want %s", got.Commit, first)
	}
}

func TestStalledDownload(t *testing.T) {
	s := newServer(t)
	s.Put(repo, model(1))
	release := make(chan struct{})
	s.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/blob/") {
			return false
		}
		w.Header().Set("Content-Length", "300000")
		_, _ = w.Write([]byte("x"))
		_ = http.NewResponseController(w).Flush()
		select {
		case <-r.Context().Done():
		case <-release:
		}
		return true
	})
	c := newClient(t, s, func(o *hub.Options) { o.Stall, o.Attempts = 20*time.Millisecond, 2 })
	_, err := c.Snapshot(t.Context(), repo, hub.SnapshotOptions{})
	close(release)
	// Any of the downloads may stall first, before or after its first bytes.
	golden.Message(t, "stalled server", err, "read model-00001-of-00002.safetensors: ", "", "read model-00002-of-00002.safetensors: ", "", "model-00002-of-", "model-00001-of-")
}

func TestRights(t *testing.T) {
	tests := []struct {
		name, token, repo string
		want              error
	}{
		{"private with a token", "hf_read", "org/private", nil},
		{"private without", "", "org/private", hub.ErrUnauthorized},
		{"wrong token", "hf_wrong", "org/open", hub.ErrUnauthorized},
		{"gated", "hf_read", "org/gated", hub.ErrGated},
		{"missing", "hf_read", "org/missing", hub.ErrNotFound},
		{"missing without token", "", "org/missing", hub.ErrUnauthorized},
	}
	s := newServer(t)
	for _, name := range []string{"open", "private", "gated"} {
		s.Put("org/"+name, map[string][]byte{"a": nil})
		s.Restrict("org/"+name, name == "private", name == "gated")
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := newClient(t, s, func(o *hub.Options) { o.Token = test.token })
			_, err := c.Snapshot(t.Context(), test.repo, hub.SnapshotOptions{})
			if !errors.Is(err, test.want) {
				t.Errorf("error = %v, want %v", err, test.want)
			} else if err != nil {
				golden.Message(t, test.name, err)
			}
			if err != nil && test.token != "" && strings.Contains(err.Error(), test.token) {
				t.Errorf("the error tells the token: %v", err)
			}
		})
	}
	c := newClient(t, s)
	if _, err := c.Snapshot(t.Context(), "org/open", hub.SnapshotOptions{Revision: "v2"}); !errors.Is(err, hub.ErrNotFound) || !strings.Contains(err.Error(), "v2") {
		t.Errorf("error = %v, want the revision in it", err)
	}
}

// TestUnreachableHub checks that the error, and the log once, tell the user what to do if the Hub
// does not answer, also if something else failed before.
func TestUnreachableHub(t *testing.T) {
	var log bytes.Buffer
	s := newServer(t)
	c := newClient(t, s, func(o *hub.Options) {
		transport := o.Transport.(*http.Transport)
		dials := 0
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			if dials++; dials == 1 {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, &net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "hub.test", IsNotFound: true}}
		}
		o.Attempts, o.Logger = 4, slog.New(slog.NewTextHandler(&log, nil))
	})
	_, err := c.Snapshot(t.Context(), repo, hub.SnapshotOptions{})
	if advice := strings.Count(log.String(), "HF_ENDPOINT"); advice != 1 || strings.Count(log.String(), "\n") != 3 {
		t.Errorf("the remedy occurs %d times: %s", advice, log.String())
	}
	if !errors.Is(err, hub.ErrUnreachable) || !strings.Contains(err.Error(), "no such host") {
		t.Errorf("error = %v, want ErrUnreachable", err)
	}
	for _, word := range []string{"HF_ENDPOINT", "HF_HUB_OFFLINE"} {
		if !strings.Contains(log.String(), word) {
			t.Errorf("the log does not say %q: %s", word, log.String())
		}
	}
}

// TestHostileTree checks that no file is written outside the snapshot, whatever the listing
// contains.
func TestHostileTree(t *testing.T) {
	for _, path := range []string{"../evil", "/etc/evil", "a/../../evil", "a//b", "./a", `..\evil`, "a\x00b", "C:evil", "", "..", "a/..", strings.Repeat("a", 2000)} {
		t.Run(path, func(t *testing.T) {
			s := newServer(t)
			s.Put(repo, map[string][]byte{path: []byte("evil")})
			c := newClient(t, s)
			if _, err := c.Snapshot(t.Context(), repo, hub.SnapshotOptions{}); !errors.Is(err, hub.ErrInvalidName) {
				t.Errorf("error = %v, want ErrInvalidName", err)
			}
			if entries, _ := os.ReadDir(c.CacheDir); len(entries) > 0 {
				t.Errorf("wrote %v", entries)
			}
		})
	}
}

func TestNames(t *testing.T) {
	s := newServer(t)
	c := newClient(t, s)
	for _, name := range []string{"", "..", "../x", "a/b/c", "a/..", "/a", "a/", "a--b/c", "org/x.git", "a b/c", "org/" + strings.Repeat("x", 100)} {
		if _, err := c.Snapshot(t.Context(), name, hub.SnapshotOptions{}); !errors.Is(err, hub.ErrInvalidName) {
			t.Errorf("repository %q: error = %v", name, err)
		}
	}
	for _, revision := range []string{"..", "../main", "/main", "a//b", "a b", "main/", "refs/../../x"} {
		if _, err := c.Snapshot(t.Context(), repo, hub.SnapshotOptions{Revision: revision}); !errors.Is(err, hub.ErrInvalidName) {
			t.Errorf("revision %q: error = %v", revision, err)
		}
	}
	if len(s.Requests()) > 0 {
		t.Errorf("asked %v", s.Requests())
	}
}

func TestSizeCap(t *testing.T) {
	s := newServer(t)
	s.Put(repo, model(1))
	_, err := newClient(t, s).Snapshot(t.Context(), repo, hub.SnapshotOptions{MaxBytes: 300_000})
	if !errors.Is(err, hub.ErrTooLarge) {
		t.Errorf("error = %v, want ErrTooLarge", err)
	}
}

// TestTwoProcesses downloads into one cache concurrently. Every blob must be transferred once.
func TestTwoProcesses(t *testing.T) {
	s := newServer(t)
	s.Put(repo, model(1))
	a := newClient(t, s)
	b := newClient(t, s, func(o *hub.Options) { o.CacheDir = a.CacheDir })
	done := make(chan error, 2)
	for _, c := range []*hub.Client{a, b} {
		go func() {
			_, err := c.Snapshot(context.Background(), repo, hub.SnapshotOptions{})
			done <- err
		}()
	}
	if err := errors.Join(<-done, <-done); err != nil {
		t.Fatal(err)
	}
	blobs := slices.DeleteFunc(s.Requests(), func(r string) bool { return !strings.Contains(r, "/blob/") })
	if len(blobs) != 2 {
		t.Errorf("fetched %v", blobs)
	}
}

func TestFromEnvironment(t *testing.T) {
	home := t.TempDir()
	token := filepath.Join(home, "token")
	if err := os.WriteFile(token, []byte("hf_file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	marked := filepath.Join(home, "marked")
	if err := os.WriteFile(marked, []byte("\ufeffhf_file \r\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		name string
		env  map[string]string
		want hub.Options
	}{
		{"nothing", map[string]string{"HOME": "/home/x"}, hub.Options{CacheDir: "/home/x/.cache/huggingface/hub"}},
		{"XDG", map[string]string{"HOME": "/home/x", "XDG_CACHE_HOME": "/c"}, hub.Options{CacheDir: "/c/huggingface/hub"}},
		{"HF_HOME with a token", map[string]string{"HF_HOME": home}, hub.Options{CacheDir: filepath.Join(home, "hub"), Token: "hf_file"}},
		{"all", map[string]string{"HF_HOME": home, "HF_HUB_CACHE": "/cache", "HF_TOKEN": " hf_env ", "HF_ENDPOINT": "https://mirror/", "HF_HUB_OFFLINE": "1"},
			hub.Options{CacheDir: "/cache", Token: "hf_env", Endpoint: "https://mirror", Offline: true}},
		{"a token of Windows", map[string]string{"HF_HUB_CACHE": "/c", "HF_TOKEN": "\ufeffhf_env\r\n"}, hub.Options{CacheDir: "/c", Token: "hf_env"}},
		{"an old variable", map[string]string{"HF_HUB_CACHE": "/c", "HUGGING_FACE_HUB_TOKEN": "hf_old\n"}, hub.Options{CacheDir: "/c", Token: "hf_old"}},
		{"a token file of Windows", map[string]string{"HF_TOKEN_PATH": marked, "HF_HUB_CACHE": "/c"}, hub.Options{CacheDir: "/c", Token: "hf_file"}},
		{"token path", map[string]string{"HF_TOKEN_PATH": token, "HF_HUB_CACHE": "/c"}, hub.Options{CacheDir: "/c", Token: "hf_file"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got, err := hub.FromEnvironment(func(name string) (string, bool) { value, found := test.env[name]; return value, found })
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
