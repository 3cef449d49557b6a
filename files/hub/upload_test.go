package hub_test

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/psyche-go/psyche/files/hub"
	"github.com/psyche-go/psyche/files/hub/hubtest"
)

func toUpload(files map[string][]byte) []hub.File {
	var list []hub.File
	for _, path := range slices.Sorted(maps.Keys(files)) {
		list = append(list, hub.File{Path: path, Data: files[path]})
	}
	return list
}

// wantFiles checks the main branch, except the initial files of every repository.
func wantFiles(t *testing.T, s *hubtest.Server, want map[string][]byte) {
	t.Helper()
	got := s.Files(repo, "main")
	delete(got, ".gitattributes")
	if diff := cmp.Diff(sums(want), sums(got)); diff != "" {
		t.Error(diff)
	}
}

func TestUpload(t *testing.T) {
	for _, partSize := range []int64{1 << 30, 100_000, 299_999} {
		s := newServer(t)
		s.PartSize = partSize
		c := newClient(t, s)
		var last hub.Progress
		o := hub.UploadOptions{Message: "step 1", Create: true, Private: true, Progress: func(p hub.Progress) { last = p }}
		commit, err := c.Upload(t.Context(), repo, toUpload(model(1)), o)
		if err != nil {
			t.Fatal(err)
		}
		wantFiles(t, s, model(1))
		if head, message := s.Head(repo, "main"); head != commit.ID || message != "step 1" || !s.IsPrivate(repo) {
			t.Errorf("commit %+v, head %s %q", commit, head, message)
		}
		if last.Files != last.AllFiles || last.Bytes != last.AllBytes || last.Files != 5 {
			t.Errorf("progress ended at %+v", last)
		}
		again, err := c.Upload(t.Context(), repo, toUpload(model(1)), o)
		if err != nil || !again.Unchanged || again.ID != commit.ID {
			t.Errorf("the same again: %+v, %v", again, err)
		}
		if leaks := s.Leaks(); len(leaks) > 0 {
			t.Errorf("the token went to the storage: %v", leaks)
		}
	}
}

// TestUploadReplaces checks that files without a successor are removed, and that existing files are
// not sent again.
func TestUploadReplaces(t *testing.T) {
	s := newServer(t)
	s.Put(repo, model(1))
	before := len(s.Requests())
	next := map[string][]byte{"config.json": []byte(`{"seed":1}`), "model.safetensors": model(1)["model-00001-of-00002.safetensors"]}
	o := hub.UploadOptions{Message: "step 2", Delete: func(path string) bool { return strings.HasPrefix(path, "model-") }}
	if _, err := newClient(t, s).Upload(t.Context(), repo, toUpload(next), o); err != nil {
		t.Fatal(err)
	}
	next["original/params.json"], next["empty.txt"] = []byte("{}"), []byte{}
	wantFiles(t, s, next)
	for _, request := range s.Requests()[before:] {
		if strings.HasPrefix(request, "PUT") {
			t.Errorf("sent stored content again: %s", request)
		}
	}
}

func TestUploadFromDisk(t *testing.T) {
	s := newServer(t)
	s.PartSize = 70_000
	path := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(path, noise(200_000, 9), 0o600); err != nil {
		t.Fatal(err)
	}
	files := []hub.File{{Path: "model.safetensors", Local: path}}
	if _, err := newClient(t, s).Upload(t.Context(), repo, files, hub.UploadOptions{Create: true, Branch: "step-7"}); err != nil {
		t.Fatal(err)
	}
	if got := s.Files(repo, "step-7")["model.safetensors"]; !bytes.Equal(got, noise(200_000, 9)) {
		t.Error("wrong content")
	}
	files[0].Local = filepath.Dir(path)
	if _, err := newClient(t, s).Upload(t.Context(), repo, files, hub.UploadOptions{}); err == nil {
		t.Error("uploaded a folder as a file")
	}
}

func TestUploadWithFaults(t *testing.T) {
	status := func(code int, where string) func(w http.ResponseWriter, r *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, where) {
				w.WriteHeader(code)
				return true
			}
			return false
		}
	}
	tests := []struct {
		name  string
		times int32
		fault func(w http.ResponseWriter, r *http.Request) bool
		want  error
	}{
		{"storage fails at times", 4, status(http.StatusInternalServerError, "/upload/"), nil},
		{"storage refuses", 99, status(http.StatusForbidden, "/upload/"), hub.ErrForbidden},
		{"batch fails at times", 2, status(http.StatusServiceUnavailable, "/objects/batch"), nil},
		{"commit fails at times", 2, status(http.StatusGatewayTimeout, "/commit/"), nil},
		{"connection is cut while sending", 2, func(_ http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPut {
				_, _ = r.Body.Read(make([]byte, 1000))
				panic(http.ErrAbortHandler)
			}
			return false
		}, nil},
		{"preupload says nothing", 99, func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "/preupload/") {
				_, _ = w.Write([]byte(`{"files":[]}`))
				return true
			}
			return false
		}, hub.ErrProtocol},
		{"storage at a strange place", 99, func(w http.ResponseWriter, r *http.Request) bool {
			if strings.Contains(r.URL.Path, "/objects/batch") {
				_, _ = w.Write([]byte(`{"objects":[{"oid":"` + strings.Repeat("0", 64) + `"}]}`))
				return true
			}
			return false
		}, hub.ErrProtocol},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s := newServer(t)
			s.PartSize = 100_000
			var left atomic.Int32
			left.Store(test.times)
			s.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
				return left.Load() > 0 && faulted(&left, test.fault, w, r)
			})
			_, err := newClient(t, s).Upload(t.Context(), repo, toUpload(model(1)), hub.UploadOptions{Create: true})
			if test.want != nil {
				if !errors.Is(err, test.want) {
					t.Errorf("error = %v, want %v", err, test.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			wantFiles(t, s, model(1))
		})
	}
}

// faulted counts a fault before it happens, because the fault may end the handler.
func faulted(left *atomic.Int32, fault func(http.ResponseWriter, *http.Request) bool, w http.ResponseWriter, r *http.Request) bool {
	left.Add(-1)
	if fault(w, r) {
		return true
	}
	left.Add(1)
	return false
}

// TestLostCommitAnswer checks that a commit whose answer was lost is found and not repeated.
func TestLostCommitAnswer(t *testing.T) {
	s := newServer(t)
	s.Put(repo, map[string][]byte{"config.json": nil})
	c := newClient(t, s)
	other := newClient(t, s)
	once := true
	s.Intercept(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/commit/") || !once {
			return false
		}
		once = false
		if _, err := other.Upload(context.Background(), repo, toUpload(model(1)), hub.UploadOptions{Message: "mine"}); err != nil {
			t.Error(err)
		}
		panic(http.ErrAbortHandler)
	})
	commit, err := c.Upload(t.Context(), repo, toUpload(model(1)), hub.UploadOptions{Message: "mine"})
	head, _ := s.Head(repo, "main")
	if err != nil || commit.ID != head || !commit.Unchanged {
		t.Errorf("%+v, %v, head %s", commit, err, head)
	}
}

// TestConcurrentUploads checks that two writers build upon each other, or stop if Check fails.
func TestConcurrentUploads(t *testing.T) {
	s := newServer(t)
	s.Put(repo, map[string][]byte{"config.json": []byte("{}")})
	once := true
	s.Intercept(func(_ http.ResponseWriter, r *http.Request) bool {
		if strings.Contains(r.URL.Path, "/preupload/") && once {
			once = false
			s.Put(repo, map[string][]byte{"other.txt": []byte("theirs")})
		}
		return false
	})
	checked := 0
	check := func(context.Context, string) error { checked++; return nil }
	if _, err := newClient(t, s).Upload(t.Context(), repo, toUpload(model(1)), hub.UploadOptions{Check: check}); err != nil {
		t.Fatal(err)
	}
	want := model(1)
	want["other.txt"] = []byte("theirs")
	wantFiles(t, s, want)
	if checked != 2 {
		t.Errorf("checked %d times, want once for each parent commit", checked)
	}
	refusal := errors.New("newer")
	_, err := newClient(t, s).Upload(t.Context(), repo, toUpload(model(2)), hub.UploadOptions{Check: func(context.Context, string) error { return refusal }})
	if !errors.Is(err, refusal) {
		t.Errorf("error = %v", err)
	}
	wantFiles(t, s, want)
}

func TestUploadRights(t *testing.T) {
	s := newServer(t)
	files := toUpload(map[string][]byte{"config.json": []byte("{}")})
	reader := newClient(t, s, func(o *hub.Options) { o.Token = "hf_read" })
	if _, err := reader.Upload(t.Context(), repo, files, hub.UploadOptions{Create: true}); !errors.Is(err, hub.ErrForbidden) {
		t.Errorf("error = %v, want ErrForbidden", err)
	}
	s.Put(repo, map[string][]byte{"config.json": nil})
	if err := reader.CanWrite(t.Context(), repo, "main"); !errors.Is(err, hub.ErrForbidden) {
		t.Errorf("error = %v, want ErrForbidden", err)
	}
	if err := newClient(t, s).CanWrite(t.Context(), repo, "main"); err != nil {
		t.Error(err)
	}
	nobody := newClient(t, s, func(o *hub.Options) { o.Token = "" })
	asked := len(s.Requests())
	_, err := nobody.Upload(t.Context(), repo, files, hub.UploadOptions{})
	for _, err := range []error{err, nobody.CreateRepo(t.Context(), repo, false), nobody.CanWrite(t.Context(), repo, "main")} {
		if !errors.Is(err, hub.ErrNoToken) || !errors.Is(err, hub.ErrUnauthorized) || !strings.Contains(err.Error(), "HF_TOKEN") {
			t.Errorf("error = %v, want ErrNoToken", err)
		}
	}
	if requests := s.Requests(); len(requests) != asked {
		t.Errorf("a forbidden request was sent to the Hub: %v", requests[asked:])
	}
	for _, bad := range [][]hub.File{nil, {{Path: "../x"}}, {{Path: "a"}, {Path: "a"}}} {
		if _, err := newClient(t, s).Upload(t.Context(), repo, bad, hub.UploadOptions{}); err == nil {
			t.Errorf("uploaded %v", bad)
		}
	}
}
