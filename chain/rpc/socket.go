package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"github.com/psyche-go/psyche/chain/transaction"
)

// Times of a WebSocket.
const (
	pingInterval = 10 * time.Second
	silence      = 30 * time.Second // after it the connection counts as dead
	writeTimeout = 5 * time.Second
)

// errSubscription means that a node refused a subscription.
var errSubscription = errors.New("the node refused the subscription")

// LogsNotice reports a transaction that names an account.
type LogsNotice struct {
	Slot      uint64
	Signature transaction.Signature
	Err       *TransactionError
	Logs      []string
}

// ListenLogs connects to the node's WebSocket, subscribes to the transactions that name an account,
// and calls handle with each notice, one at a time, until ctx or the connection ends. It always
// returns an error. It calls ready once the subscription is accepted. It does not reconnect.
func (e *Endpoint) ListenLogs(ctx context.Context, mentions transaction.PublicKey, c Commitment, ready func(), handle func(LogsNotice)) error {
	if err := e.listenLogs(ctx, mentions, c, ready, handle); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: WebSocket: %w", e.name, err)
	}
	return context.Cause(ctx)
}

func (e *Endpoint) listenLogs(ctx context.Context, mentions transaction.PublicKey, c Commitment, ready func(), handle func(LogsNotice)) error {
	connection, err := e.connect(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { keepAlive(ctx, connection) })
	if err := connection.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	params := []any{map[string]any{"mentions": []string{mentions.String()}}, commitment{c}}
	if err := connection.WriteJSON(request{Version: "2.0", ID: 1, Method: "logsSubscribe", Params: params}); err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	var l listening
	for {
		_, content, err := connection.ReadMessage()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		if err := connection.SetReadDeadline(time.Now().Add(silence)); err != nil {
			return err
		}
		notice, accepted, err := l.take(content)
		switch {
		case err != nil:
			return err
		case accepted:
			ready()
		case notice != nil:
			handle(*notice)
		}
	}
}

// connect opens the WebSocket. Every message or pong extends its deadline.
func (e *Endpoint) connect(ctx context.Context) (*websocket.Conn, error) {
	dialer := websocket.Dialer{
		Proxy: http.ProxyFromEnvironment, HandshakeTimeout: e.timeout, NetDialContext: (&net.Dialer{Timeout: e.timeout}).DialContext,
	}
	connection, response, err := dialer.DialContext(ctx, e.address.WS, nil) //nolint:bodyclose // the dialer keeps none open
	if err != nil {
		if response != nil {
			return nil, fmt.Errorf("%w: status %d", ErrUnreachable, response.StatusCode)
		}
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, withoutURL(err))
	}
	connection.SetReadLimit(smallAnswer)
	alive := func() error { return connection.SetReadDeadline(time.Now().Add(silence)) }
	if err := alive(); err != nil {
		_ = connection.Close()
		return nil, err
	}
	connection.SetPongHandler(func(string) error { return alive() })
	return connection, nil
}

// keepAlive sends pings, and closes the connection when ctx ends.
func keepAlive(ctx context.Context, connection *websocket.Conn) {
	ticker := time.NewTicker(pingInterval)
	defer ticker.Stop()
	defer func() { _ = connection.Close() }()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if connection.WriteControl(websocket.PingMessage, nil, time.Now().Add(writeTimeout)) != nil {
				return
			}
		}
	}
}

// listening is the state of a subscription.
type listening struct {
	accepted bool
	name     uint64 // the node's id of the subscription
}

type message struct {
	ID     *uint64         `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *nodeError      `json:"error"`
	Params struct {
		Subscription uint64          `json:"subscription"`
		Result       json.RawMessage `json:"result"`
	} `json:"params"`
}

// take processes a message: a notice, or the answer to the subscription. accepted is true for the
// first answer.
func (l *listening) take(content []byte) (notice *LogsNotice, accepted bool, err error) {
	var m message
	if err := json.Unmarshal(content, &m); err != nil {
		return nil, false, fmt.Errorf("%w: %q: %w", ErrBadAnswer, shorten(content), err)
	}
	switch {
	case m.Error != nil:
		m.Error.Message = shorten([]byte(m.Error.Message))
		return nil, false, fmt.Errorf("%w: %w", errSubscription, m.Error)
	case m.ID != nil:
		if *m.ID != 1 || json.Unmarshal(m.Result, &l.name) != nil {
			return nil, false, fmt.Errorf("%w: %q is not an answer to a subscription", ErrBadAnswer, shorten(content))
		}
		before := l.accepted
		l.accepted = true
		return nil, !before, nil
	case !l.accepted || m.Params.Subscription != l.name:
		return nil, false, nil // a notice that arrived before the answer to its subscription
	}
	notice, err = decodeLogs(m.Params.Result)
	if err != nil {
		return nil, false, fmt.Errorf("%w: notice %q: %w", ErrBadAnswer, shorten(content), err)
	}
	return notice, false, nil
}

func decodeLogs(raw json.RawMessage) (*LogsNotice, error) {
	var found atSlot[struct {
		Signature string            `json:"signature"`
		Err       *TransactionError `json:"err"`
		Logs      []string          `json:"logs"`
	}]
	if err := json.Unmarshal(raw, &found); err != nil {
		return nil, err
	}
	signature, err := transaction.ParseSignature(found.Value.Signature)
	return &LogsNotice{found.Context.Slot, signature, found.Value.Err, found.Value.Logs}, err
}
