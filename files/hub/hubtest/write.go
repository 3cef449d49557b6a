package hubtest

import (
	"bufio"
	"bytes"
	"crypto/md5" //nolint:gosec // storages name parts by it
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"
)

// asks decodes the body of a request, or refuses it.
func asks(w http.ResponseWriter, r *http.Request, ask any) bool {
	err := json.NewDecoder(r.Body).Decode(ask)
	if err != nil {
		fail(w, http.StatusBadRequest, "", err.Error())
	}
	return err == nil
}

// lfsBatch answers with the upload address of each object: for one piece, or for parts.
func (s *Server) lfsBatch(w http.ResponseWriter, r *http.Request, _ *repo) {
	var ask struct {
		Transfers []string
		Objects   []struct {
			OID  string
			Size int64
		}
	}
	if !asks(w, r, &ask) {
		return
	}
	objects := []map[string]any{}
	transfer := "basic"
	for _, o := range ask.Objects {
		object := map[string]any{"oid": o.OID, "size": o.Size}
		base := s.URL + "/" + r.PathValue("owner") + "/" + r.PathValue("name")
		if _, stored := s.objects[o.OID]; !stored {
			upload := map[string]any{"href": s.StorageURL + "/upload/" + o.OID}
			if o.Size > s.PartSize && slices.Contains(ask.Transfers, "multipart") {
				transfer = "multipart"
				header := map[string]string{"chunk_size": strconv.FormatInt(s.PartSize, 10)}
				for part := range (o.Size-1)/s.PartSize + 1 {
					header[fmt.Sprintf("%05d", part+1)] = fmt.Sprintf("%s/upload/%s?part=%d", s.StorageURL, o.OID, part+1)
				}
				upload = map[string]any{"href": base + "/lfs-complete/" + o.OID, "header": header}
			}
			object["actions"] = map[string]any{"upload": upload, "verify": map[string]any{"href": base + "/lfs-verify"}}
		}
		objects = append(objects, object)
	}
	w.Header().Set("Content-Type", "application/vnd.git-lfs+json")
	_ = json.NewEncoder(w).Encode(map[string]any{"transfer": transfer, "objects": objects})
}

func (s *Server) lfsVerify(w http.ResponseWriter, r *http.Request, _ *repo) {
	var ask struct {
		OID  string
		Size int64
	}
	if err := json.NewDecoder(r.Body).Decode(&ask); err != nil || int64(len(s.objects[ask.OID])) != ask.Size {
		fail(w, http.StatusNotFound, "", "object is not stored")
		return
	}
	answer(w, map[string]any{})
}

// completeParts joins the parts of an object. It requires no token, because its address is a
// secret.
func (s *Server) completeParts(w http.ResponseWriter, r *http.Request) {
	var ask struct {
		OID   string
		Parts []struct {
			PartNumber int
			ETag       string
		}
	}
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody)).Decode(&ask); err != nil {
		fail(w, http.StatusBadRequest, "", err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var whole []byte
	for i, part := range ask.Parts {
		data := s.parts[ask.OID][part.PartNumber]
		if part.PartNumber != i+1 || part.ETag != etagOf(data) {
			fail(w, http.StatusBadRequest, "", fmt.Sprintf("part %d is not as stored", part.PartNumber))
			return
		}
		whole = append(whole, data...)
	}
	if err := s.keep(ask.OID, whole); err != nil {
		fail(w, http.StatusBadRequest, "", err.Error())
		return
	}
	delete(s.parts, ask.OID)
	answer(w, map[string]any{})
}

func (s *Server) keep(oid string, data []byte) error {
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != oid {
		return errors.New("content does not have the hash")
	}
	s.objects[oid] = data
	return nil
}

func etagOf(data []byte) string {
	sum := md5.Sum(data) //nolint:gosec // not for security
	return `"` + hex.EncodeToString(sum[:]) + `"`
}

// commit parses the lines of a commit and applies them to the branch, if the branch's newest commit
// is their parent.
func (s *Server) commit(w http.ResponseWriter, r *http.Request, repo *repo) {
	branch := r.PathValue("revision")
	id, parent, found := at(w, r, repo)
	if !found {
		return
	}
	files := maps.Clone(parent.files)
	summary := ""
	lines := bufio.NewReader(r.Body)
	for {
		text, err := lines.ReadBytes('\n')
		if len(bytes.TrimSpace(text)) > 0 {
			var line commitLine
			if err := json.Unmarshal(text, &line); err != nil {
				fail(w, http.StatusBadRequest, "", err.Error())
				return
			}
			if line.Key == "header" {
				summary = line.Value.Summary
			}
			if expected := line.Value.ParentCommit; expected != "" && expected != id {
				fail(w, http.StatusPreconditionFailed, "", "A commit has happened since. Please refresh and try again.")
				return
			}
			if err := s.apply(files, line); err != nil {
				fail(w, http.StatusBadRequest, "", err.Error())
				return
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
	}
	made := repo.commit(branch, summary, files)
	answer(w, map[string]any{"success": true, "commitOid": made, "commitUrl": s.URL + "/" + r.PathValue("owner") + "/" + r.PathValue("name") + "/commit/" + made, "hookOutput": ""})
}

type commitLine struct {
	Key   string
	Value struct {
		Summary, ParentCommit string
		Path, Content, OID    string
		Size                  int64
	}
}

func (s *Server) apply(files map[string]file, line commitLine) error {
	v := line.Value
	switch line.Key {
	case "header":
	case "file":
		data, err := base64.StdEncoding.DecodeString(v.Content)
		if err != nil {
			return err
		}
		files[v.Path] = file{data: data, oid: gitBlob(data), size: int64(len(data))}
	case "lfsFile":
		data, stored := s.objects[v.OID]
		if !stored {
			return fmt.Errorf("%s: object %s is not stored", v.Path, v.OID)
		}
		files[v.Path] = pointer(v.OID, int64(len(data)))
	case "deletedFile":
		delete(files, v.Path)
	default:
		return fmt.Errorf("unknown line %q", line.Key)
	}
	return nil
}

// storageRoutes returns the routes of the second host. Its addresses are secret, so requests
// need no token.
func (s *Server) storageRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /blob/{oid}", func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		data, found := s.objects[r.PathValue("oid")]
		s.mu.Unlock()
		if !found {
			fail(w, http.StatusNotFound, "", "no such object")
			return
		}
		w.Header().Set("ETag", etagOf(data)) // differs from the Hub's
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	})
	mux.HandleFunc("PUT /upload/{oid}", func(w http.ResponseWriter, r *http.Request) {
		data, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		s.mu.Lock()
		defer s.mu.Unlock()
		oid := r.PathValue("oid")
		part, partErr := strconv.Atoi(r.URL.Query().Get("part"))
		switch {
		case err != nil:
		case r.URL.Query().Has("part") && partErr == nil:
			if s.parts[oid] == nil {
				s.parts[oid] = map[int][]byte{}
			}
			s.parts[oid][part] = data
			w.Header().Set("ETag", etagOf(data))
		default:
			err = s.keep(oid, data)
		}
		if err != nil {
			fail(w, http.StatusBadRequest, "", err.Error())
		}
	})
	return mux
}
