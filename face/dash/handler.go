package dash

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/psyche-go/psyche/core/coordinator"
	"github.com/psyche-go/psyche/face/dash/history"
	"github.com/psyche-go/psyche/face/dash/shown"
	"github.com/psyche-go/psyche/net/admission"
	"github.com/psyche-go/psyche/record/config"
)

//go:embed assets
var embedded embed.FS

// Content security policies: the page loads only its own files. Only its worker may compile the
// verifier.
const (
	policy = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types worker"
	workerPolicy = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'; require-trusted-types-for 'script'; trusted-types 'none'"
)

// answerLife is how long an answer is cached. It limits how often a run is described, independently
// of the number of readers.
const answerLife = 500 * time.Millisecond

// maxAnswers limits the cached answers.
const maxAnswers = 256

// ranges are the allowed numbers of newest steps of a curve; 0 means all steps.
var ranges = []uint32{0, 100, 500, 2000}

// Page serves the dashboard.
type Page struct {
	runs     func() []Run
	verifier *Verifier
	logs     *admission.Budget // bytes of logs
	mux      *http.ServeMux

	mu      sync.Mutex
	answers map[string]*answer
	index   *file // the newest; nil: none yet
}

// answer is a cached description.
type answer struct {
	mu     sync.Mutex
	made   time.Time
	packed []byte // gzip
	etag   string
}

// New returns the page. runs returns the runs to show, in their order. If verifier is nil, browsers
// cannot check logs.
func New(runs func() []Run, verifier *Verifier) *Page {
	p := &Page{runs: runs, verifier: verifier, logs: admission.NewBudget(logRate, logBurst), mux: http.NewServeMux(), answers: make(map[string]*answer)}
	p.mux.HandleFunc("GET /api/runs", p.serveRuns)
	p.mux.HandleFunc("GET /api/run", p.serveRun)
	p.mux.HandleFunc("GET /api/log", p.serveLog)
	p.mux.HandleFunc("GET /api/qr", p.serveQR)
	p.mux.HandleFunc("POST /api/talk", p.serveTalk)
	p.mux.Handle("GET /api/openapi.json", served("openapi.json"))
	p.mux.HandleFunc("GET /{$}", p.serveIndex)
	p.mux.HandleFunc("GET /icon.svg", servedIcon())
	for _, name := range append(slices.Clone(modules), "colours.css", "style.css", "card.png") {
		p.mux.Handle("GET /"+name, served(name))
	}
	if verifier != nil {
		worker := served("worker.js")
		p.mux.HandleFunc("GET /worker.js", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Security-Policy", workerPolicy)
			worker.ServeHTTP(w, r)
		})
		p.mux.HandleFunc("GET /api/journal", p.serveJournal)
		p.mux.HandleFunc("GET /verifier.wasm", verifier.serveProgram)
		p.mux.HandleFunc("GET /wasm_exec.js", verifier.serveLoader)
	}
	return p
}

// served returns a handler for one of the page's embedded files.
func served(name string) http.Handler {
	f, err := newFile(name)
	if err != nil {
		panic("dash: embedded file " + name + ": " + err.Error())
	}
	return f
}

// ServeHTTP implements http.Handler.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Security-Policy", policy)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cross-Origin-Opener-Policy", "same-origin")
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("Cache-Control", "no-cache")
	p.mux.ServeHTTP(w, r)
}

// shownRuns is the answer of /api/runs.
type shownRuns struct {
	Runs     []listed `json:"runs"`
	Verifier int      `json:"verifier_bytes"` // size of /verifier.wasm; 0: the page has no verifier
}

// listed is a run in the list of all runs.
type listed struct {
	Key     string `json:"key"`
	RunID   string `json:"run_id"`
	Name    string `json:"name,omitempty"` // display name, set by the main authority
	Source  string `json:"source"`
	State   string `json:"run_state"`
	Closed  bool   `json:"closed"`
	Epoch   uint32 `json:"epoch"`
	Step    uint32 `json:"step"`
	Total   uint32 `json:"total_steps"`
	Members int    `json:"members"`
	Waiting int    `json:"waiting"`
	Problem string `json:"problem,omitempty"`
}

func (p *Page) serveRuns(w http.ResponseWriter, r *http.Request) {
	p.reply(w, r, "runs", func() any {
		list := []listed{}
		for _, run := range p.runs() {
			state, view := run.state()
			l := listed{Key: run.Key, RunID: run.Key, Source: run.Source, State: "unknown", Problem: view.Problem}
			if state != nil {
				l.RunID, l.State, l.Closed, l.Epoch, l.Step, l.Total = state.RunID, state.RunState.String(), state.Closed, state.Progress.Epoch, state.Progress.Step, state.Config.TotalSteps
				l.Name, _ = config.NameOf(state.Model.Definition)
				l.Waiting = len(state.Pending)
				if run.Log != nil {
					run.Log.History(func(h *history.History) {
						if len(h.Rounds.List) == 0 {
							l.Step = max(l.Step, 1) - 1 // the first step is not complete
						}
					})
				}
				for i := range state.Epoch.Clients {
					if state.Epoch.Clients[i].State == coordinator.Healthy {
						l.Members++
					}
				}
			}
			list = append(list, l)
		}
		shown := shownRuns{Runs: list}
		if p.verifier != nil {
			shown.Verifier = len(p.verifier.program)
		}
		return shown
	})
}

// find returns the requested run. If it does not exist, find writes the error.
func (p *Page) find(w http.ResponseWriter, r *http.Request) (Run, bool) {
	key := r.URL.Query().Get("run")
	for _, run := range p.runs() {
		if run.Key == key {
			return run, true
		}
	}
	http.Error(w, "no such run", http.StatusNotFound)
	return Run{}, false
}

// number reads a number of the query; 0 if it is missing.
func number(w http.ResponseWriter, r *http.Request, name string) (uint32, bool) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return 0, true
	}
	n, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		http.Error(w, name+": want a number", http.StatusBadRequest)
	}
	return uint32(n), err == nil
}

// serveRun sends everything about a run. With last=N the curves contain only the newest N steps.
func (p *Page) serveRun(w http.ResponseWriter, r *http.Request) {
	run, ok := p.find(w, r)
	if !ok {
		return
	}
	last, ok := number(w, r, "last")
	if !ok {
		return
	}
	if !slices.Contains(ranges, last) {
		http.Error(w, fmt.Sprintf("last: want one of %v", ranges), http.StatusBadRequest)
		return
	}
	p.reply(w, r, fmt.Sprintf("run %d %s", last, run.Key), func() any { return run.show(last) })
}

// shownEvents is the answer of /api/log.
type shownEvents struct {
	Events []history.Event `json:"events"` // newest first
	More   int             `json:"more"`   // number of older events, the value of before for the next page
}

// serveLog sends a page of older events. The query parameter "before" is the argument of shown.Events.
func (p *Page) serveLog(w http.ResponseWriter, r *http.Request) {
	run, ok := p.find(w, r)
	if !ok {
		return
	}
	before, ok := number(w, r, "before")
	if !ok {
		return
	}
	page := shownEvents{Events: []history.Event{}}
	if run.Log != nil {
		run.Log.History(func(h *history.History) { page.Events, page.More = shown.Events(h, int(before)) })
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(page)
}

// serveTalk answers a reader's question to the model of a finished run.
func (p *Page) serveTalk(w http.ResponseWriter, r *http.Request) {
	run, ok := p.find(w, r)
	if !ok {
		return
	}
	state, _ := run.state()
	if run.Talk == nil || state == nil || state.RunState != coordinator.Finished {
		http.Error(w, "this page has no chat with the model of this run", http.StatusNotFound)
		return
	}
	run.Talk.ServeAnswer(w, r, state.RunID)
}

// reply sends the result of describe, or a cached result.
func (p *Page) reply(w http.ResponseWriter, r *http.Request, name string, describe func() any) {
	a := p.kept(name)
	a.mu.Lock()
	if time.Since(a.made) > answerLife {
		if err := a.make(describe()); err != nil {
			a.mu.Unlock()
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
	}
	packed, etag := a.packed, a.etag
	a.mu.Unlock()
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("ETag", etag)
	header.Set("Vary", "Accept-Encoding")
	if r.Header.Get("If-None-Match") == etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		header.Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed) // fails if the reader has disconnected
		return
	}
	if unpacked, err := gzip.NewReader(bytes.NewReader(packed)); err == nil {
		_, _ = io.Copy(w, unpacked) // fails if the reader has disconnected
	}
}

// kept returns the cache entry for a name. If there are too many entries it clears the cache,
// because names come from requests.
func (p *Page) kept(name string) *answer {
	p.mu.Lock()
	defer p.mu.Unlock()
	a, known := p.answers[name]
	if !known {
		if len(p.answers) >= maxAnswers {
			clear(p.answers)
		}
		a = &answer{}
		p.answers[name] = a
	}
	return a
}

// make encodes and compresses a value. The caller holds the answer's lock.
func (a *answer) make(value any) error {
	var packed bytes.Buffer
	to, err := gzip.NewWriterLevel(&packed, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if err := errors.Join(json.NewEncoder(to).Encode(value), to.Close()); err != nil {
		return fmt.Errorf("describe a run: %w", err)
	}
	a.packed, a.made = packed.Bytes(), time.Now()
	a.etag = fmt.Sprintf(`"%x"`, sha256.Sum256(a.packed))
	return nil
}
