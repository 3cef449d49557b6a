package hubtest

import (
	"cmp"
	"crypto/sha1" //nolint:gosec // Git names its objects by it
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
)

// Server is a Hub and its storage. Its fields may be changed before the first request. Afterwards
// use its methods.
type Server struct {
	URL        string // of the Hub
	StorageURL string // of the storage, another host

	Tokens       map[string]bool // known tokens; true: may write
	LFSThreshold int64           // minimum size in bytes of files that go to the storage; .safetensors always do
	PartSize     int64           // size in bytes from which uploads are split into parts of that size
	PageSize     int             // entries per page of a listing
	Cached       bool            // small files are behind a redirect to the Hub itself, as at the public Hub

	hub, storage *httptest.Server

	mu        sync.Mutex
	repos     map[string]*repo
	objects   map[string][]byte         // by SHA-256
	parts     map[string]map[int][]byte // of incomplete uploads
	intercept func(http.ResponseWriter, *http.Request) bool
	log       []string
	leaks     []string
}

type repo struct {
	private, gated bool
	branches       map[string]string
	commits        map[string]commit
}

// commit is a tree. The content of large files is in Server.objects.
type commit struct {
	message string
	parent  string
	files   map[string]file
}

type file struct {
	data []byte // of small files
	oid  string // Git blob ID; for large files that of the pointer
	lfs  string // SHA-256, or ""
	size int64
}

// New starts the servers on loopback.
func New() *Server {
	s := &Server{
		Tokens:       map[string]bool{},
		LFSThreshold: 10 << 20,
		PartSize:     1 << 30,
		PageSize:     1000,
		repos:        map[string]*repo{},
		objects:      map[string][]byte{},
		parts:        map[string]map[int][]byte{},
	}
	s.hub = httptest.NewServer(s.observe(s.routes()))
	s.storage = httptest.NewServer(s.observe(s.storageRoutes()))
	s.URL, s.StorageURL = s.hub.URL, s.storage.URL
	return s
}

// Close stops the servers.
func (s *Server) Close() {
	s.hub.Close()
	s.storage.Close()
}

// Intercept sets a function that receives each request first, and returns true if it has answered
// it. Nil removes the function.
func (s *Server) Intercept(f func(http.ResponseWriter, *http.Request) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercept = f
}

// Requests returns the requests so far, as "METHOD /path".
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.log)
}

// Leaks returns the requests that sent a token to the storage.
func (s *Server) Leaks() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.leaks)
}

// Put commits files to the main branch of a repository and returns the commit. It creates the
// repository if necessary.
func (s *Server) Put(name string, files map[string][]byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.repos[name]
	if r == nil {
		r = s.create(name, false)
	}
	next := maps.Clone(r.commits[r.branches["main"]].files)
	for path, data := range files {
		next[path] = s.file(path, data)
	}
	return r.commit("main", "put", next)
}

// Restrict makes a repository private or gated.
func (s *Server) Restrict(name string, private, gated bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.repos[name].private, s.repos[name].gated = private, gated
}

// Files returns the files of a branch.
func (s *Server) Files(name, branch string) map[string][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	files := map[string][]byte{}
	if r := s.repos[name]; r != nil {
		for path, f := range r.commits[r.branches[branch]].files {
			files[path] = s.content(f)
		}
	}
	return files
}

// Head returns the newest commit of a branch, and its message.
func (s *Server) Head(name, branch string) (id, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.repos[name]
	if r == nil {
		return "", ""
	}
	id = r.branches[branch]
	return id, r.commits[id].message
}

// IsPrivate reports whether a repository is private.
func (s *Server) IsPrivate(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.repos[name] != nil && s.repos[name].private
}

// create creates a repository with its first commit. The caller must hold s.mu.
func (s *Server) create(name string, private bool) *repo {
	r := &repo{private: private, branches: map[string]string{}, commits: map[string]commit{}}
	const attributes = "*.safetensors filter=lfs diff=lfs merge=lfs -text\n"
	r.commit("main", "initial commit", map[string]file{".gitattributes": {data: []byte(attributes), oid: gitBlob([]byte(attributes)), size: int64(len(attributes))}})
	s.repos[name] = r
	return r
}

func (r *repo) commit(branch, message string, files map[string]file) string {
	parent := r.branches[branch]
	sum := sha1.New() //nolint:gosec // Git's
	_, _ = fmt.Fprintf(sum, "%s\n%s\n%d\n", parent, message, len(r.commits))
	for _, path := range slices.Sorted(maps.Keys(files)) {
		_, _ = fmt.Fprintf(sum, "%s %s\n", path, cmp.Or(files[path].lfs, files[path].oid))
	}
	id := hex.EncodeToString(sum.Sum(nil))
	r.commits[id] = commit{message, parent, files}
	r.branches[branch] = id
	return id
}

// at returns the commit of a revision.
func (r *repo) at(revision string) (string, commit, bool) {
	if id, found := r.branches[revision]; found {
		revision = id
	}
	c, found := r.commits[revision]
	return revision, c, found
}

func (s *Server) large(path string, size int64) bool {
	return size > 0 && (strings.HasSuffix(path, ".safetensors") || size >= s.LFSThreshold)
}

// file returns a tree entry for content. The caller must hold s.mu.
func (s *Server) file(path string, data []byte) file {
	if !s.large(path, int64(len(data))) {
		return file{data: data, oid: gitBlob(data), size: int64(len(data))}
	}
	sum := sha256.Sum256(data)
	oid := hex.EncodeToString(sum[:])
	s.objects[oid] = data
	return pointer(oid, int64(len(data)))
}

func pointer(oid string, size int64) file {
	text := fmt.Sprintf("version https://git-lfs.github.com/spec/v1\noid sha256:%s\nsize %d\n", oid, size)
	return file{oid: gitBlob([]byte(text)), lfs: oid, size: size}
}

func (s *Server) content(f file) []byte {
	if f.lfs != "" {
		return s.objects[f.lfs]
	}
	return f.data
}

func gitBlob(data []byte) string {
	sum := sha1.New() //nolint:gosec // Git's
	_, _ = fmt.Fprintf(sum, "blob %d\x00", len(data))
	_, _ = sum.Write(data)
	return hex.EncodeToString(sum.Sum(nil))
}

// observe records requests, and lets the interceptor answer them.
func (s *Server) observe(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		s.log = append(s.log, r.Method+" "+r.URL.Path)
		if "http://"+r.Host == s.StorageURL && r.Header.Get("Authorization") != "" {
			s.leaks = append(s.leaks, r.Method+" "+r.URL.Path)
		}
		intercept := s.intercept
		s.mu.Unlock()
		if intercept == nil || !intercept(w, r) {
			next.ServeHTTP(w, r)
		}
	})
}

// fail answers as the Hub does.
func fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	if code != "" {
		w.Header().Set("X-Error-Code", code)
	}
	w.Header().Set("X-Error-Message", message)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]string{"error": message})
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value)
}

// allowed returns the repository of a request if the sender may read or write it, and otherwise
// sends the reason. The caller must hold s.mu.
func (s *Server) allowed(w http.ResponseWriter, r *http.Request, write bool) (*repo, bool) {
	token, sent := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	writes, known := s.Tokens[token]
	name := r.PathValue("owner") + "/" + strings.TrimSuffix(r.PathValue("name"), ".git")
	repo := s.repos[name]
	switch {
	case sent && !known, write && !known:
		fail(w, http.StatusUnauthorized, "", "Invalid username or password.")
	case write && !writes:
		fail(w, http.StatusForbidden, "", "This token may not write here.")
	case !known && (repo == nil || repo.private):
		fail(w, http.StatusUnauthorized, "RepoNotFound", "Invalid username or password.")
	case repo == nil:
		fail(w, http.StatusNotFound, "RepoNotFound", "Repository not found")
	case repo.gated && !writes:
		fail(w, http.StatusForbidden, "GatedRepo", "Access to model "+name+" is restricted.")
	default:
		return repo, true
	}
	return nil, false
}
