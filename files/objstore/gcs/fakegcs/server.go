package fakegcs

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// pageSize is small, so that tests cover several pages.
const pageSize = 2

// Server contains buckets, which are created on first use.
type Server struct {
	Host string // value for STORAGE_EMULATOR_HOST

	mu         sync.Mutex
	objects    map[string]object // by bucket and name
	generation int64
	uploads    map[string]*upload
	failing    int    // number of requests to answer with 503
	authorised string // last Authorization header
}

type object struct {
	content    []byte
	generation int64
}

// upload is a resumable upload in progress.
type upload struct {
	bucket, name, condition string
	content                 []byte
}

// New starts a server that is closed when the test ends.
func New(t testing.TB) *Server {
	s, end := Start()
	t.Cleanup(end)
	return s
}

// Start starts a server. end stops it.
func Start() (s *Server, end func()) {
	s = &Server{objects: map[string]object{}, uploads: map[string]*upload{}, generation: 1_000_000}
	server := httptest.NewServer(s)
	s.Host = strings.TrimPrefix(server.URL, "http://")
	return s, server.Close
}

// Objects returns the objects of a bucket by name.
func (s *Server) Objects(bucket string) map[string][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	found := map[string][]byte{}
	for path, o := range s.objects {
		if name, ok := strings.CutPrefix(path, bucket+"/"); ok {
			found[name] = o.content
		}
	}
	return found
}

// Set writes an object.
func (s *Server) Set(bucket, name string, content []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.set(bucket, name, content)
}

func (s *Server) set(bucket, name string, content []byte) object {
	s.generation++
	o := object{content: content, generation: s.generation}
	s.objects[bucket+"/"+name] = o
	return o
}

// Fail makes the next n requests fail as in an overloaded service.
func (s *Server) Fail(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = n
}

// Authorization returns the Authorization header of the last request.
func (s *Server) Authorization() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.authorised
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.authorised = r.Header.Get("Authorization")
	if s.failing > 0 {
		s.failing--
		fail(w, http.StatusServiceUnavailable)
		return
	}
	path, uploading := strings.CutPrefix(r.URL.EscapedPath(), "/upload")
	path, ok := strings.CutPrefix(path, "/storage/v1/b/")
	parts := strings.SplitN(path, "/", 3)
	if !ok || len(parts) < 2 || parts[1] != "o" {
		fail(w, http.StatusNotImplemented)
		return
	}
	switch {
	case uploading:
		s.upload(w, r, parts[0])
	case len(parts) == 2:
		s.list(w, r, parts[0])
	default:
		name, err := url.PathUnescape(parts[2])
		if err != nil {
			fail(w, http.StatusBadRequest)
			return
		}
		s.get(w, r, parts[0], name)
	}
}

func fail(w http.ResponseWriter, code int) {
	answer(w, code, map[string]any{"error": map[string]any{"code": code, "message": http.StatusText(code)}})
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func resource(bucket, name string, o object) map[string]any {
	return map[string]any{
		"kind": "storage#object", "bucket": bucket, "name": name, "metageneration": "1",
		"generation": strconv.FormatInt(o.generation, 10), "size": strconv.Itoa(len(o.content)),
	}
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, bucket string) {
	var names []string
	for key := range s.objects {
		name, ok := strings.CutPrefix(key, bucket+"/")
		if ok && strings.HasPrefix(name, r.FormValue("prefix")) && name > r.FormValue("pageToken") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	body := map[string]any{"kind": "storage#objects"}
	if len(names) > pageSize {
		names = names[:pageSize]
		body["nextPageToken"] = names[pageSize-1]
	}
	var items []any
	for _, name := range names {
		items = append(items, resource(bucket, name, s.objects[bucket+"/"+name]))
	}
	body["items"] = items
	answer(w, http.StatusOK, body)
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, bucket, name string) {
	o, ok := s.objects[bucket+"/"+name]
	if generation := r.FormValue("generation"); !ok || generation != "" && generation != strconv.FormatInt(o.generation, 10) {
		fail(w, http.StatusNotFound)
		return
	}
	if r.FormValue("alt") != "media" {
		answer(w, http.StatusOK, resource(bucket, name, o))
		return
	}
	w.Header().Set("X-Goog-Generation", strconv.FormatInt(o.generation, 10))
	w.Header().Set("X-Goog-Metageneration", "1")
	w.Header().Set("X-Goog-Stored-Content-Length", strconv.Itoa(len(o.content)))
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(o.content))
}

func (s *Server) upload(w http.ResponseWriter, r *http.Request, bucket string) {
	if id := r.FormValue("upload_id"); id != "" {
		s.resume(w, r, id)
		return
	}
	condition := r.FormValue("ifGenerationMatch")
	if r.FormValue("uploadType") == "multipart" {
		name, content, err := readMultipart(r)
		if err != nil {
			fail(w, http.StatusBadRequest)
			return
		}
		s.finish(w, &upload{bucket: bucket, name: name, condition: condition, content: content})
		return
	}
	var metadata struct{ Name string }
	if err := json.NewDecoder(r.Body).Decode(&metadata); err != nil {
		fail(w, http.StatusBadRequest)
		return
	}
	if metadata.Name == "" {
		metadata.Name = r.FormValue("name")
	}
	id := strconv.Itoa(len(s.uploads) + 1)
	s.uploads[id] = &upload{bucket: bucket, name: metadata.Name, condition: condition}
	w.Header().Set("Location", "http://"+s.Host+"/upload/storage/v1/b/"+bucket+"/o?uploadType=resumable&upload_id="+id)
	w.WriteHeader(http.StatusOK)
}

// resume accepts the next part of a resumable upload.
func (s *Server) resume(w http.ResponseWriter, r *http.Request, id string) {
	u := s.uploads[id]
	if u == nil {
		fail(w, http.StatusNotFound)
		return
	}
	part, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has disconnected
	}
	u.content = append(u.content, part...)
	if strings.HasSuffix(r.Header.Get("Content-Range"), "/*") {
		w.Header().Set("Range", "bytes=0-"+strconv.Itoa(len(u.content)-1))
		w.Header().Set("X-Http-Status-Code-Override", "308")
		return // 200 with that header, as for clients that do not accept status 308
	}
	s.finish(w, u)
}

func readMultipart(r *http.Request) (name string, content []byte, err error) {
	_, parameters, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return "", nil, err
	}
	reader := multipart.NewReader(r.Body, parameters["boundary"])
	part, err := reader.NextPart()
	if err != nil {
		return "", nil, err
	}
	var metadata struct{ Name string }
	if err := json.NewDecoder(part).Decode(&metadata); err != nil {
		return "", nil, err
	}
	if part, err = reader.NextPart(); err != nil {
		return "", nil, err
	}
	content, err = io.ReadAll(part)
	if err != nil {
		return "", nil, err
	}
	if metadata.Name == "" {
		metadata.Name = r.FormValue("name")
	}
	_, err = reader.NextPart() // the end must have arrived
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return metadata.Name, content, err
}

// finish creates the object of an upload if its condition holds.
func (s *Server) finish(w http.ResponseWriter, u *upload) {
	current := s.objects[u.bucket+"/"+u.name]
	if u.condition != "" && u.condition != strconv.FormatInt(current.generation, 10) {
		fail(w, http.StatusPreconditionFailed)
		return
	}
	answer(w, http.StatusOK, resource(u.bucket, u.name, s.set(u.bucket, u.name, u.content)))
}
