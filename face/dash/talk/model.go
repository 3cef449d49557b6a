package talk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/psyche-go/psyche/net/admission"
)

// Limits of a Model.
const (
	maxTokens  = 200 // of an answer
	maxWaiting = 8   // requests, including the running one
	perSecond  = 0.2 // answers for one network in the long term
	burst      = 6

	lookTime  = 500 * time.Millisecond // for the model's description
	lookWait  = 50 * time.Millisecond  // of a reader for this description
	lookEvery = 2 * time.Second
	waitTime  = 30 * time.Second // for a turn
	runTime   = 60 * time.Second // for an answer
	writeTime = 10 * time.Second // for a reader to receive an answer
	maxReply  = 1 << 20          // bytes of an answer of serve-model
	maxHeader = 16 << 10
)

// Sampling options of all answers.
const (
	temperature = 0.8
	topP        = 0.95
)

// errAddress means that an address is not HOST:PORT.
var errAddress = errors.New("want HOST:PORT")

// Model is a model that psyche-client serve-model serves. It is safe for concurrent use.
type Model struct {
	base, key string
	client    *http.Client

	rates *admission.KeyLimits[netip.Prefix]
	slots *admission.Limiter
	turns *admission.Turns
	busy  atomic.Bool // an answer is running, so the model answers

	mu      sync.Mutex
	looked  time.Time
	looking chan struct{} // closed at the end of the running request for the description; nil: none is running
	seen    described
}

// described is the model's description. Its zero value means that the model does not answer.
type described struct {
	Name    string `json:"id"`
	Context int    `json:"max_model_len"` // tokens
	Chats   bool   `json:"chats"`
}

// New returns the model at an address. key is its API key; empty means none.
func New(address, key string) (*Model, error) {
	host, port, err := net.SplitHostPort(address)
	if n, portErr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || portErr != nil || n == 0 {
		return nil, fmt.Errorf("%w, such as 127.0.0.1:8000, not %q", errAddress, address)
	}
	return &Model{
		base: "http://" + net.JoinHostPort(host, port), key: key,
		client: &http.Client{
			Transport:     &http.Transport{MaxIdleConns: 2, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxHeader}, // without a proxy
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		rates: admission.NewKeyLimits[netip.Prefix](perSecond, burst), slots: admission.NewLastingLimiter(maxWaiting), turns: admission.NewTurns(1),
	}, nil
}

// Offer describes the chat with a finished run's model.
type Offer struct {
	Ready   bool `json:"ready"`   // false: the model does not answer, perhaps because it is being loaded
	Turns   bool `json:"turns"`   // the model reads conversations; otherwise it continues a text
	Context int  `json:"context"` // tokens that the model reads; an answer has at most half of them
}

// Offer returns the description of the chat for a finished run. It returns nil if the model belongs to another run.
func (m *Model) Offer(ctx context.Context, runID string) *Offer {
	seen, answers := m.look(ctx)
	switch {
	case !answers && seen.Name == "":
		return &Offer{}
	case seen.Name != runID:
		return nil
	}
	return &Offer{Ready: answers, Turns: seen.Chats, Context: seen.Context}
}

// look returns the description of the model, the last one if it does not answer now. It waits at most lookWait, so that
// a model's server that accepts connections but does not answer does not delay the page.
func (m *Model) look(ctx context.Context) (seen described, answers bool) {
	m.mu.Lock()
	if m.looking == nil && time.Since(m.looked) >= lookEvery && !m.busy.Load() {
		m.looking = make(chan struct{})
		go m.describe(context.WithoutCancel(ctx), m.looking) // other readers use the result too
	}
	looking := m.looking
	m.mu.Unlock()
	if looking != nil {
		select {
		case <-looking:
		case <-time.After(lookWait):
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen, m.seen.Context > 0
}

// describe requests the description of the model, records it, and closes done.
func (m *Model) describe(ctx context.Context, done chan struct{}) {
	defer close(done)
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	var list struct {
		Data []described `json:"data"`
	}
	err := m.call(ctx, http.MethodGet, "/v1/models", nil, &list)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.looking, m.looked = nil, time.Now()
	if err != nil || len(list.Data) != 1 {
		m.seen.Context = 0
	} else {
		m.seen = list.Data[0]
	}
}

// call sends a request to serve-model and decodes the answer. A nil body sends no body. It returns a *problem for an
// answer with an error.
func (m *Model) call(ctx context.Context, method, path string, body, answer any) error {
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, m.base+path, content)
	if err != nil {
		return err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if m.key != "" {
		request.Header.Set("Authorization", "Bearer "+m.key)
	}
	response, err := m.client.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxReply))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return failure(response.StatusCode, text)
	}
	return json.Unmarshal(text, answer)
}

// failure returns the error in an answer of serve-model. Readers see the reason only if they can change it.
func failure(status int, text []byte) error {
	var reply struct {
		Error struct {
			Message string `json:"message"`
			Code    string `json:"code"`
		} `json:"error"`
	}
	_ = json.Unmarshal(text, &reply) // otherwise there is no message
	switch {
	case reply.Error.Code == "context_length_exceeded":
		return refused(http.StatusRequestEntityTooLarge, "the text is longer than the model reads; shorten it, or begin a new conversation")
	case status == http.StatusBadRequest && reply.Error.Message != "":
		const most = 300
		return refused(status, "the model's server refused the text: %s", Plain(reply.Error.Message, most))
	}
	return refused(http.StatusBadGateway, "the model's server answered with status %d", status)
}
