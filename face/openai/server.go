package openai

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/psyche-go/psyche/files/tokenizer"
	"github.com/psyche-go/psyche/files/tokenizer/chat"
	"github.com/psyche-go/psyche/net/admission"
)

// Model is a model with its tokenizer and template.
type Model struct {
	Name       string // name in requests
	Context    int    // maximum number of tokens of a prompt and its completion
	Vocab      int    // number of ids of the model
	Tokenizer  *tokenizer.Tokenizer
	Ends       []int32           // ids that end a text
	Template   *chat.Template    // nil: no chats, for the reason NoTemplate
	Named      map[string]string // tokens that the template uses by name
	NoTemplate error

	// Tokens generates the completion of a prompt and calls emit with each token, until one of
	// Ends, MaxTokens, the end of ctx, or an error of emit, which it wraps. The server calls it
	// concurrently for several prompts.
	Tokens func(ctx context.Context, prompt []int32, o Options, emit func(id int32) error) error
}

// Options configure the choice of tokens.
type Options struct {
	MaxTokens   int     // at least 1
	Temperature float64 // 0: always the most likely token
	TopP        float64 // above 0, at most 1
	Seed        uint64
	// Observe, if not nil, is called with the model's logits before each token is emitted. It must
	// not keep them.
	Observe func(logits []float32)
}

// Limits limit concurrent work of a server.
type Limits struct {
	Running int           // running answers, at least 1
	Waiting int           // waiting requests
	Time    time.Duration // of a request, including its wait
}

// Limits of requests, and time limits for clients.
const (
	maxBody      = 4 << 20
	largeBody    = 64 << 10 // size from which on requests are tokenized one at a time
	maxBodies    = 64       // concurrent reads
	maxHeader    = 16 << 10
	readTimeout  = 5 * time.Second // for the next bytesInTime of a body, or its rest
	bytesInTime  = 16 << 10
	headerTime   = 30 * time.Second
	writeTimeout = 30 * time.Second // for the reader to receive a piece of an answer
	idleTimeout  = time.Minute
)

// Reasons why a request ends early.
var (
	errEvicted = errors.New("other clients have fewer requests")
	errTime    = errors.New("the time limit of the request passed")
	errClosing = errors.New("the server is shutting down")
)

// Server is an HTTP handler for the API. It is safe for concurrent use.
type Server struct {
	model   Model
	limits  Limits
	key     [sha256.Size]byte // API key of requests, hashed
	locked  bool              // a key is required
	logger  *slog.Logger
	started time.Time
	grace   time.Duration // for running answers after the server's end
	mux     *http.ServeMux
	form    *callForm // of tool calls; nil: unknown

	bodies  *admission.Limiter // requests whose bodies are being read
	queue   *queue
	large   chan struct{} // a large request is being tokenized
	closing chan struct{}

	mu   sync.Mutex
	took time.Duration // recent duration of an answer
}

// New returns a Server. If key is not empty, requests must send it.
func New(m Model, l Limits, key string, logger *slog.Logger) (*Server, error) {
	if l.Running < 1 || l.Waiting < 0 || l.Running+l.Waiting > 1<<16 || l.Time <= 0 {
		return nil, fmt.Errorf("%d running requests, %d waiting requests, time limit %v: want at least 1 running, at least 0 waiting, at most 65536 together, and a time limit above 0", l.Running, l.Waiting, l.Time)
	}
	s := &Server{
		model: m, limits: l, key: sha256.Sum256([]byte(key)), locked: key != "", logger: logger, started: time.Now(), grace: graceTimeout, mux: http.NewServeMux(),
		bodies: admission.NewLastingLimiter(maxBodies),
		queue:  newQueue(l.Running, l.Waiting), large: make(chan struct{}, 1), closing: make(chan struct{}),
	}
	if m.Template != nil {
		s.form = formOf(m.Template, m.Tokenizer)
	}
	s.mux.HandleFunc("POST /v1/chat/completions", s.complete(true))
	s.mux.HandleFunc("POST /v1/completions", s.complete(false))
	s.mux.HandleFunc("GET /v1/models", func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{s.described()}})
	})
	s.mux.HandleFunc("GET /v1/models/{name...}", func(w http.ResponseWriter, r *http.Request) {
		if problem := s.named(r.PathValue("name")); problem != nil {
			writeJSON(w, problem.status, problem.body())
			return
		}
		writeJSON(w, http.StatusOK, s.described())
	})
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		running, waiting := s.queue.counts()
		writeJSON(w, http.StatusOK, map[string]any{"status": "ok", "running": running, "waiting": waiting})
	})
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		missing := invalid("", "", "unknown endpoint %s %.200s; this server has POST /v1/chat/completions and /v1/completions, GET /v1/models and /healthz", r.Method, r.URL.Path)
		writeJSON(w, http.StatusNotFound, missing.body())
	})
	return s, nil
}

func (s *Server) described() any {
	return map[string]any{
		"id": s.model.Name, "object": "model", "created": s.started.Unix(), "owned_by": "psyche", "max_model_len": s.model.Context, "chats": s.model.Template != nil,
	}
}

func (s *Server) named(name string) *problem {
	if name != s.model.Name {
		missing := invalid("model", "model_not_found", "unknown model %.100q; this server has %q", name, s.model.Name)
		missing.status = http.StatusNotFound
		return missing
	}
	return nil
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w) // all connections of net/http have deadlines
	_ = control.SetReadDeadline(time.Now().Add(readTimeout))
	_ = control.SetWriteDeadline(time.Now().Add(readTimeout + writeTimeout)) // until the answer sets its own deadline
	if problem := s.admit(r); problem != nil {
		if problem.status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		writeJSON(w, problem.status, problem.body())
		return
	}
	s.mux.ServeHTTP(w, r)
}

// admit rejects requests without the API key. If the server has no key, it rejects requests on a
// loopback address with a host name other than localhost. A web page could otherwise send them
// through a browser on this machine (DNS rebinding).
func (s *Server) admit(r *http.Request) *problem {
	if r.URL.Path == "/healthz" {
		return nil
	}
	if s.locked {
		scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		given := sha256.Sum256([]byte(strings.TrimSpace(key)))
		if !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(given[:], s.key[:]) != 1 {
			return &problem{status: http.StatusUnauthorized, kind: "invalid_request_error", code: "invalid_api_key",
				message: "the API key is missing or wrong: send Authorization: Bearer KEY"}
		}
		return nil
	}
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	name := r.Host
	if host, _, err := net.SplitHostPort(r.Host); err == nil {
		name = host
	}
	if local != nil && local.IP.IsLoopback() && name != "localhost" && net.ParseIP(strings.Trim(name, "[]")) == nil {
		return &problem{status: http.StatusForbidden, kind: "invalid_request_error",
			message: fmt.Sprintf("the name %.100q is not this machine's: use 127.0.0.1 or localhost, or start the server with an API key", name)}
	}
	return nil
}

// complete handles chat requests or text completion requests.
func (s *Server) complete(inChat bool) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeoutCause(r.Context(), s.limits.Time, errTime)
		defer cancel()
		arrived := time.Now()
		a := &answer{model: &s.model, w: w, control: http.NewResponseController(w), inChat: inChat}
		problem := s.serve(ctx, r, a)
		switch {
		case problem != nil && problem.cause != nil:
			s.logger.Error("the model failed", "error", problem.cause)
		case problem != nil && problem.status >= http.StatusTooManyRequests:
			w.Header().Set("Retry-After", strconv.Itoa(s.retryAfter()))
		}
		finish := ""
		if problem != nil {
			a.fail(problem)
			finish = problem.message
		} else {
			finish = a.choices[0].finish
		}
		prompt, written := a.tokens()
		s.logger.Info("answered", "path", r.URL.Path, "choices", len(a.choices), "prompt_tokens", prompt, "completion_tokens", written, "finish", finish,
			"ms", time.Since(arrived).Milliseconds())
	}
}

// serve reads the request, takes a slot, waits for its turn and sends the answer. A request without
// a slot costs no more than the bytes of its body.
func (s *Server) serve(ctx context.Context, r *http.Request, a *answer) (problem *problem) {
	if a.request, problem = s.read(ctx, r, a); problem != nil {
		return problem
	}
	select {
	case <-s.closing:
		return closing
	default:
	}
	waiting, cancelWait := context.WithCancelCause(ctx)
	defer cancelWait(nil)
	from := admission.Network(asker(r))
	turn := s.queue.enter(from, func() { cancelWait(errEvicted) })
	if turn == nil {
		return busy("the server is full: %d running and %d waiting requests; retry later", s.limits.Running, s.limits.Waiting)
	}
	defer s.queue.leave(turn)
	defer whileAnswered(r.Context())()
	if problem = s.encode(waiting, a); problem != nil {
		return problem
	}
	s.queue.await(turn)
	select {
	case <-turn.begun:
	case <-s.closing:
		return closing
	case <-waiting.Done():
		return early(waiting)
	}
	began := time.Now()
	problem = a.write(ctx, func() func() {
		if t := s.queue.spare(from); t != nil {
			return func() { s.queue.leave(t) }
		}
		return nil
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.took += (time.Since(began) - s.took) / 4
	return problem
}

// encode tokenizes large requests one at a time. Each may occupy a CPU for a second, and the running
// answers need the CPUs.
func (s *Server) encode(ctx context.Context, a *answer) *problem {
	if a.size > largeBody {
		select {
		case s.large <- struct{}{}:
			defer func() { <-s.large }()
		case <-s.closing:
			return closing
		case <-ctx.Done():
			return early(ctx)
		}
	}
	return a.encode(s.form)
}

// read reads a request and checks everything that can be checked before it is tokenized.
func (s *Server) read(ctx context.Context, r *http.Request, a *answer) (request, *problem) {
	text, problem := s.readBody(ctx, r, a)
	if problem != nil {
		return request{}, problem
	}
	a.size = len(text)
	req, problem := decode(text, a.inChat)
	if problem == nil {
		problem = s.named(req.model)
	}
	return req, problem
}

// retryAfter returns the recommended wait before a retry, in seconds.
func (s *Server) retryAfter() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(math.Ceil(min(max(s.took.Seconds()*float64(s.limits.Waiting+1)/float64(s.limits.Running), 1), 60)))
}
