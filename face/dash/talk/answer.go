package talk

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"time"

	"github.com/psyche-go/psyche/net/admission"
)

// Reasons why a request ends before its answer.
var (
	errEvicted = &problem{http.StatusTooManyRequests, "readers of other networks have fewer requests; try again later"}
	errWait    = &problem{http.StatusTooManyRequests, "too many readers are waiting; try again later"}
	errTime    = &problem{http.StatusGatewayTimeout, "the model needed too long for an answer"}
	errGone    = &problem{http.StatusBadGateway, "the model does not answer; its process may have ended"}
)

// ServeAnswer answers a question about the model of a finished run.
func (m *Model) ServeAnswer(w http.ResponseWriter, r *http.Request, runID string) {
	answer, err := m.serve(w, r, runID)
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(writeTime)) // connections without deadlines occur only in tests
	w.Header().Set("Cache-Control", "no-store")
	if p, ok := errors.AsType[*problem](err); ok {
		if p.status == http.StatusTooManyRequests {
			w.Header().Set("Retry-After", strconv.Itoa(1/perSecond))
		}
		http.Error(w, p.text, p.status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer) // fails if the reader has disconnected
}

// serve returns the answer, or a *problem.
func (m *Model) serve(w http.ResponseWriter, r *http.Request, runID string) (Answer, error) {
	if err := checkOrigin(r); err != nil {
		return Answer{}, err
	}
	offer := m.Offer(r.Context(), runID)
	switch {
	case offer == nil:
		return Answer{}, refused(http.StatusNotFound, "this page has no chat with the model of this run")
	case !offer.Ready:
		return Answer{}, errGone
	}
	question, err := readQuestion(w, r, offer.Turns)
	if err != nil {
		return Answer{}, err
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(waitTime + runTime + writeTime))
	address, _ := netip.ParseAddrPort(r.RemoteAddr)
	from := net.TCPAddrFromAddrPort(address)
	if !m.rates.Of(admission.Network(from)).Allow() {
		return Answer{}, refused(http.StatusTooManyRequests, "too many requests from your network; try again in a few seconds")
	}
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	slot := m.slots.Enter(from, func() { cancel(errEvicted) })
	if slot == nil {
		return Answer{}, errWait
	}
	defer m.slots.Leave(slot)
	answer, err := m.inTurn(ctx, from, question, offer)
	var p *problem
	switch {
	case err == nil:
		return answer, nil
	case errors.As(context.Cause(ctx), &p), errors.As(err, &p):
		return Answer{}, p
	}
	return Answer{}, errGone // or the reader has disconnected
}

// inTurn waits for a turn and asks the model.
func (m *Model) inTurn(ctx context.Context, from net.Addr, q Question, offer *Offer) (Answer, error) {
	waiting, cancel := context.WithTimeoutCause(ctx, waitTime, errWait)
	defer cancel()
	if err := m.turns.Wait(waiting, from); err != nil {
		return Answer{}, err
	}
	defer m.turns.Done()
	m.busy.Store(true)
	defer m.busy.Store(false)
	running, cancel := context.WithTimeoutCause(ctx, runTime, errTime)
	defer cancel()
	answer, err := m.ask(running, q, offer)
	if err != nil && running.Err() != nil {
		err = context.Cause(running)
	}
	return answer, err
}

// completion is an answer of serve-model.
type completion struct {
	Choices []struct {
		Text    string `json:"text"`
		Message struct {
			Content string `json:"content"`
		} `json:"message"`
		Finish string `json:"finish_reason"`
	} `json:"choices"`
}

// ask sends the question to serve-model.
func (m *Model) ask(ctx context.Context, q Question, offer *Offer) (Answer, error) {
	body := map[string]any{"model": m.name(), "max_tokens": min(maxTokens, max(1, offer.Context/2)), "temperature": temperature, "top_p": topP}
	path := "/v1/completions"
	if offer.Turns {
		path, body["messages"] = "/v1/chat/completions", q.Messages
	} else {
		body["prompt"] = q.Messages[0].Content
	}
	var reply completion
	if err := m.call(ctx, http.MethodPost, path, body, &reply); err != nil {
		return Answer{}, err
	}
	if len(reply.Choices) != 1 {
		return Answer{}, errGone
	}
	c := reply.Choices[0]
	text := c.Text
	if offer.Turns {
		text = c.Message.Content
	}
	return Answer{Text: Plain(text, maxText), Cut: c.Finish == "length"}, nil
}

// name returns the model's name in requests.
func (m *Model) name() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.seen.Name
}
