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

// Model is what answers.
type Model struct {
	Name       string // by which requests name it
	Context    int    // tokens of a prompt and its answer together
	Vocab      int    // the model has the ids below
	Tokenizer  *tokenizer.Tokenizer
	Ends       []int32           // ids that end a text
	Template   *chat.Template    // nil: there are no chats, because of NoTemplate
	Named      map[string]string // tokens that the template sees
	NoTemplate error

	// Tokens calls emit with each token that follows a prompt until one of Ends, or MaxTokens, or an
	// error of emit, which its own wraps. It is called for several prompts at once and ends with ctx.
	Tokens func(ctx context.Context, prompt []int32, o Options, emit func(id int32) error) error
}

// Options say how tokens are chosen.
type Options struct {
	MaxTokens   int     // at least 1
	Temperature float64 // 0: the most likely always
	TopP        float64 // above 0, at most 1
	Seed        uint64
	// Observe, if it is not nil, gets the model's logits for each token before it is emitted, and does not keep them.
	Observe func(logits []float32)
}

// Limits bound what a server does at once.
type Limits struct {
	Running int           // answers that are written at once, at least 1
	Waiting int           // requests that wait for one of these to end
	Time    time.Duration // of a request, with its wait
}

// Bounds of requests, and how long peers may take.
const (
	maxBody      = 4 << 20
	largeBody    = 64 << 10 // from which on requests are encoded one after the other
	maxBodies    = 64       // that are read at once
	maxHeader    = 16 << 10
	readTimeout  = 5 * time.Second // for the next bytesInTime of a body, or its rest
	bytesInTime  = 16 << 10
	headerTime   = 30 * time.Second
	writeTimeout = 30 * time.Second // for the reader to take a piece of an answer
	idleTimeout  = time.Minute
)

// Reasons why a request ends early.
var (
	errGaveWay = errors.New("other clients have fewer requests")
	errTime    = errors.New("the time of a request is over")
	errClosing = errors.New("the server is ending")
)

// Server answers requests. It is safe for concurrent use.
type Server struct {
	model   Model
	limits  Limits
	key     [sha256.Size]byte // of requests, hashed
	locked  bool              // a key is needed
	logger  *slog.Logger
	started time.Time
	grace   time.Duration // for answers that are being written when the server ends
	mux     *http.ServeMux
	form    *callForm // of calls of tools; nil: unknown

	bodies  *admission.Limiter // requests whose bodies are being read
	queue   *queue
	large   chan struct{} // a large request is being encoded
	closing chan struct{}

	mu   sync.Mutex
	took time.Duration // by an answer, of late
}

// New makes a server. Requests have to bring the key, if there is one.
func New(m Model, l Limits, key string, logger *slog.Logger) (*Server, error) {
	if l.Running < 1 || l.Waiting < 0 || l.Running+l.Waiting > 1<<16 || l.Time <= 0 {
		return nil, fmt.Errorf("%d requests that run and %d that wait, for %v: want at least 1, 0 and more than no time", l.Running, l.Waiting, l.Time)
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
		"id": s.model.Name, "object": "model", "created": s.started.Unix(), "owned_by": "psyche", "max_model_len": s.model.Context,
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
	_ = control.SetWriteDeadline(time.Now().Add(readTimeout + writeTimeout)) // until an answer has its own
	if problem := s.admit(r); problem != nil {
		if problem.status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		writeJSON(w, problem.status, problem.body())
		return
	}
	s.mux.ServeHTTP(w, r)
}

// admit refuses who has no key. Where there is none, it refuses what a page of the internet can make
// a browser on this machine send: requests by a name that leads here for the page only.
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

// complete answers requests for an answer in a conversation, or for what follows a text.
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

// serve reads the request, takes a place, waits for its turn and writes the answer. A request
// without a place has cost no more than its bytes.
func (s *Server) serve(ctx context.Context, r *http.Request, a *answer) (problem *problem) {
	if a.request, problem = s.read(ctx, r, a); problem != nil {
		return problem
	}
	select {
	case <-s.closing:
		return closing
	default:
	}
	waiting, giveWay := context.WithCancelCause(ctx)
	defer giveWay(nil)
	from := admission.Network(asker(r))
	turn := s.queue.enter(from, func() { giveWay(errGaveWay) })
	if turn == nil {
		return busy("%d answers are being written and %d requests wait: ask again later", s.limits.Running, s.limits.Waiting)
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

// encode has one large request encoded at a time: it may take a second of a CPU, and the answers that are being written
// need them.
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

// read reads a request and checks what can be checked before it is encoded.
func (s *Server) read(ctx context.Context, r *http.Request, a *answer) (request, *problem) {
	text, problem := s.readBody(ctx, r, a)
	if problem != nil {
		return request{}, problem
	}
	a.size = len(text)
	asked, problem := decode(text, a.inChat)
	if problem == nil {
		problem = s.named(asked.model)
	}
	return asked, problem
}

// retryAfter is how many seconds it is worth to wait before asking again.
func (s *Server) retryAfter() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return int(math.Ceil(min(max(s.took.Seconds()*float64(s.limits.Waiting+1)/float64(s.limits.Running), 1), 60)))
}
