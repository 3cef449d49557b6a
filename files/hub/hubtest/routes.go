package hubtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxBody is the maximum size of a request in bytes.
const maxBody = 64 << 20

// routes returns the routes of the Hub. The families of paths overlap in their patterns, so each
// has a separate table.
func (s *Server) routes() http.Handler {
	api := http.NewServeMux()
	api.HandleFunc("POST /api/repos/create", s.createRepo)
	api.HandleFunc("GET /api/models/{owner}/{name}", s.reading(s.info))
	api.HandleFunc("GET /api/models/{owner}/{name}/revision/{revision}", s.reading(s.info))
	api.HandleFunc("GET /api/models/{owner}/{name}/tree/{revision}", s.reading(s.tree))
	api.HandleFunc("POST /api/models/{owner}/{name}/paths-info/{revision}", s.reading(s.pathsInfo))
	api.HandleFunc("POST /api/models/{owner}/{name}/preupload/{revision}", s.writing(s.preupload))
	api.HandleFunc("POST /api/models/{owner}/{name}/branch/{revision}", s.writing(s.createBranch))
	api.HandleFunc("POST /api/models/{owner}/{name}/commit/{revision}", s.writing(s.commit))
	api.HandleFunc("GET /api/datasets/{owner}/{name}/revision/{revision}", s.reading(s.info))
	api.HandleFunc("GET /api/datasets/{owner}/{name}/tree/{revision}", s.reading(s.tree))
	api.HandleFunc("GET /api/resolve-cache/{owner}/{name}/{revision}/{path...}", s.reading(s.serveSmall))
	files := http.NewServeMux()
	files.HandleFunc("GET /{owner}/{name}/resolve/{revision}/{path...}", s.reading(s.resolve))
	files.HandleFunc("POST /{owner}/{name}/info/lfs/objects/batch", s.writing(s.lfsBatch))
	files.HandleFunc("POST /{owner}/{name}/lfs-complete/{oid}", s.completeParts)
	files.HandleFunc("POST /{owner}/{name}/lfs-verify", s.writing(s.lfsVerify))
	datasets := http.NewServeMux()
	datasets.HandleFunc("GET /datasets/{owner}/{name}/resolve/{revision}/{path...}", s.reading(s.resolve))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/api/"):
			api.ServeHTTP(w, r)
		case strings.HasPrefix(r.URL.Path, "/datasets/"):
			datasets.ServeHTTP(w, r)
		default:
			files.ServeHTTP(w, r)
		}
	})
}

type handler func(w http.ResponseWriter, r *http.Request, repo *repo)

func (s *Server) reading(h handler) http.HandlerFunc { return s.guarded(h, false) }
func (s *Server) writing(h handler) http.HandlerFunc { return s.guarded(h, true) }

// guarded calls h with s.mu held, after reading the body.
func (s *Server) guarded(h handler, write bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			fail(w, http.StatusBadRequest, "", err.Error())
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		s.mu.Lock()
		defer s.mu.Unlock()
		if repo, ok := s.allowed(w, r, write); ok {
			h(w, r, repo)
		}
	}
}

func revisionOf(r *http.Request) string {
	if revision := r.PathValue("revision"); revision != "" {
		return revision
	}
	return "main"
}

// at returns the commit of a request, or sends an error if there is none.
func at(w http.ResponseWriter, r *http.Request, repo *repo) (string, commit, bool) {
	id, c, found := repo.at(revisionOf(r))
	if !found {
		fail(w, http.StatusNotFound, "RevisionNotFound", "Invalid rev id: "+revisionOf(r))
	}
	return id, c, found
}

func (s *Server) createRepo(w http.ResponseWriter, r *http.Request) {
	var ask struct{ Name, Organization, Visibility string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&ask); err != nil {
		fail(w, http.StatusBadRequest, "", err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	writes, known := s.Tokens[token]
	name := ask.Organization + "/" + ask.Name
	switch {
	case !known:
		fail(w, http.StatusUnauthorized, "", "Invalid username or password.")
	case !writes:
		fail(w, http.StatusForbidden, "", "This token may not create repositories.")
	case s.repos[name] != nil:
		w.WriteHeader(http.StatusConflict)
		answer(w, map[string]string{"error": "You already created this model repo", "url": s.URL + "/" + name})
	default:
		s.create(name, ask.Visibility == "private")
		answer(w, map[string]string{"url": s.URL + "/" + name, "name": name, "id": name})
	}
}

func (s *Server) info(w http.ResponseWriter, r *http.Request, repo *repo) {
	id, c, found := at(w, r, repo)
	if !found {
		return
	}
	name := r.PathValue("owner") + "/" + r.PathValue("name")
	siblings := []map[string]string{}
	for _, path := range slices.Sorted(maps.Keys(c.files)) {
		siblings = append(siblings, map[string]string{"rfilename": path})
	}
	answer(w, map[string]any{"id": name, "modelId": name, "sha": id, "private": repo.private, "gated": repo.gated,
		"disabled": false, "downloads": 0, "likes": 0, "tags": []string{}, "siblings": siblings, "createdAt": time.Unix(0, 0).UTC()})
}

func listed(path string, f file) map[string]any {
	entry := map[string]any{"type": "file", "path": path, "size": f.size, "oid": f.oid}
	if f.lfs != "" {
		entry["lfs"] = map[string]any{"oid": f.lfs, "size": f.size, "pointerSize": 134}
	}
	return entry
}

// tree lists files and folders, in pages.
func (s *Server) tree(w http.ResponseWriter, r *http.Request, repo *repo) {
	_, c, found := at(w, r, repo)
	if !found {
		return
	}
	entries := []map[string]any{}
	folders := map[string]bool{}
	for _, path := range slices.Sorted(maps.Keys(c.files)) {
		if dir, _, nested := strings.Cut(path, "/"); nested && !folders[dir] {
			folders[dir] = true
			entries = append(entries, map[string]any{"type": "directory", "path": dir, "size": 0, "oid": gitBlob([]byte(dir))})
		}
		entries = append(entries, listed(path, c.files[path]))
	}
	start, _ := strconv.Atoi(r.URL.Query().Get("cursor"))
	start = min(max(start, 0), len(entries))
	end := min(start+s.PageSize, len(entries))
	if end < len(entries) {
		query := r.URL.Query()
		query.Set("cursor", strconv.Itoa(end))
		w.Header().Set("Link", fmt.Sprintf(`<%s%s?%s>; rel="next"`, s.URL, r.URL.EscapedPath(), query.Encode()))
	}
	answer(w, entries[start:end])
}

func (s *Server) pathsInfo(w http.ResponseWriter, r *http.Request, repo *repo) {
	id, c, found := at(w, r, repo)
	if !found {
		return
	}
	var ask struct{ Paths []string }
	if !asks(w, r, &ask) {
		return
	}
	entries := []map[string]any{}
	for _, path := range ask.Paths {
		if f, found := c.files[path]; found {
			entry := listed(path, f)
			entry["lastCommit"] = map[string]any{"id": id, "title": c.message, "date": time.Unix(0, 0).UTC()}
			entries = append(entries, entry)
		}
	}
	answer(w, entries)
}

// resolve answers with the metadata of a file, and with its content or a redirect to it.
func (s *Server) resolve(w http.ResponseWriter, r *http.Request, repo *repo) {
	id, c, found := at(w, r, repo)
	if !found {
		return
	}
	w.Header().Set("X-Repo-Commit", id)
	path := r.PathValue("path")
	f, found := c.files[path]
	if !found {
		fail(w, http.StatusNotFound, "EntryNotFound", "Entry not found")
		return
	}
	switch {
	case f.lfs != "":
		w.Header().Set("X-Linked-Etag", `"`+f.lfs+`"`)
		w.Header().Set("X-Linked-Size", strconv.FormatInt(f.size, 10))
		w.Header().Set("ETag", `"`+f.lfs+`"`)
		w.Header().Set("Location", s.StorageURL+"/blob/"+f.lfs+"?signature=secret")
		w.WriteHeader(http.StatusFound)
	case s.Cached:
		w.Header().Set("X-Linked-Etag", `"`+f.oid+`"`)
		w.Header().Set("X-Linked-Size", strconv.FormatInt(f.size, 10))
		w.Header().Set("Location", "/api/resolve-cache/"+r.PathValue("owner")+"/"+r.PathValue("name")+"/"+id+"/"+path)
		w.WriteHeader(http.StatusTemporaryRedirect)
	default:
		s.serveSmall(w, r, repo)
	}
}

func (s *Server) serveSmall(w http.ResponseWriter, r *http.Request, repo *repo) {
	id, c, found := at(w, r, repo)
	if !found {
		return
	}
	f := c.files[r.PathValue("path")]
	w.Header().Set("X-Repo-Commit", id)
	w.Header().Set("ETag", `"`+f.oid+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(f.data))
}

func (s *Server) preupload(w http.ResponseWriter, r *http.Request, _ *repo) {
	var ask struct {
		Files []struct {
			Path string
			Size int64
		}
	}
	if !asks(w, r, &ask) {
		return
	}
	files := []map[string]any{}
	for _, f := range ask.Files {
		mode := "regular"
		if s.large(f.Path, f.Size) {
			mode = "lfs"
		}
		files = append(files, map[string]any{"path": f.Path, "uploadMode": mode, "shouldIgnore": false, "oid": nil})
	}
	answer(w, map[string]any{"files": files})
}

func (s *Server) createBranch(w http.ResponseWriter, r *http.Request, repo *repo) {
	branch := r.PathValue("revision")
	if _, found := repo.branches[branch]; found {
		fail(w, http.StatusConflict, "", "Reference already exists")
		return
	}
	repo.branches[branch] = repo.branches["main"]
	answer(w, map[string]any{})
}
