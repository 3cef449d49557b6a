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

// maxSubscriptions limits the subscriptions of one Listen.
const maxSubscriptions = 16

// errSubscription means that a node refused a subscription.
var errSubscription = errors.New("the node refused the subscription")

// Subscription is a kind of notices from a node; see Logs, AccountChanges and Slots.
type Subscription struct {
	method string
	params []any
	decode func(json.RawMessage) (any, error)
}

// LogsNotice reports a transaction that names an account.
type LogsNotice struct {
	Slot      uint64
	Signature transaction.Signature
	Err       *TransactionError
	Logs      []string
}

// AccountNotice reports an account's new content.
type AccountNotice struct {
	Slot    uint64
	Account *Account
}

// slotNotice reports a new slot.
type slotNotice struct {
	Slot   uint64 `json:"slot"`
	Parent uint64 `json:"parent"`
	Root   uint64 `json:"root"`
}

// Logs subscribes to the transactions that name an account. The handle function of Listen receives
// LogsNotice values.
func Logs(mentions transaction.PublicKey, c Commitment) Subscription {
	return Subscription{
		method: "logsSubscribe", params: []any{map[string]any{"mentions": []string{mentions.String()}}, commitment{c}},
		decode: func(raw json.RawMessage) (any, error) {
			var found atSlot[struct {
				Signature string            `json:"signature"`
				Err       *TransactionError `json:"err"`
				Logs      []string          `json:"logs"`
			}]
			if err := json.Unmarshal(raw, &found); err != nil {
				return nil, err
			}
			signature, err := transaction.ParseSignature(found.Value.Signature)
			return LogsNotice{found.Context.Slot, signature, found.Value.Err, found.Value.Logs}, err
		},
	}
}

// AccountChanges subscribes to an account. The handle function of Listen receives AccountNotice
// values.
func AccountChanges(key transaction.PublicKey, c Commitment) Subscription {
	return Subscription{
		method: "accountSubscribe", params: []any{key, queryParameters{Encoding: "base64+zstd", Commitment: c}},
		decode: func(raw json.RawMessage) (any, error) {
			var found atSlot[*rawAccount]
			if err := json.Unmarshal(raw, &found); err != nil {
				return nil, err
			}
			account, err := found.Value.decode()
			return AccountNotice{found.Context.Slot, account}, err
		},
	}
}

// Slots subscribes to new slots. The handle function of Listen receives slotNotice values.
func Slots() Subscription {
	return Subscription{method: "slotSubscribe", decode: func(raw json.RawMessage) (any, error) {
		var notice slotNotice
		err := json.Unmarshal(raw, &notice)
		return notice, err
	}}
}

// Listen connects to the node's WebSocket, subscribes, and calls handle with each notice, one at a
// time, until ctx or the connection ends. It always returns an error. It calls ready once all
// subscriptions are accepted. It does not reconnect.
func (e *Endpoint) Listen(ctx context.Context, ready func(), handle func(notice any), subscriptions ...Subscription) error {
	if err := e.listen(ctx, ready, handle, subscriptions); err != nil && ctx.Err() == nil {
		return fmt.Errorf("%s: WebSocket: %w", e.name, err)
	}
	return context.Cause(ctx)
}

func (e *Endpoint) listen(ctx context.Context, ready func(), handle func(any), subscriptions []Subscription) error {
	if len(subscriptions) == 0 || len(subscriptions) > maxSubscriptions {
		return fmt.Errorf("%d subscriptions, want 1 to %d", len(subscriptions), maxSubscriptions)
	}
	connection, err := e.connect(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()
	running.Go(func() { keepAlive(ctx, connection) })
	for i, s := range subscriptions {
		if err := connection.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
			return err
		}
		if err := connection.WriteJSON(request{Version: "2.0", ID: uint64(i + 1), Method: s.method, Params: s.params}); err != nil {
			return fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
	}
	state := listening{subscriptions: subscriptions, names: make(map[uint64]int)}
	for {
		_, content, err := connection.ReadMessage()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		if err := connection.SetReadDeadline(time.Now().Add(silence)); err != nil {
			return err
		}
		notice, complete, err := state.take(content)
		switch {
		case err != nil:
			return err
		case complete && ready != nil:
			ready()
		case notice != nil:
			handle(notice)
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

// listening maps notices to subscriptions.
type listening struct {
	subscriptions []Subscription
	names         map[uint64]int // subscription index by the node's id
}

type message struct {
	ID     *uint64         `json:"id"`
	Result json.RawMessage `json:"result"`
	Error  *Error          `json:"error"`
	Params struct {
		Subscription uint64          `json:"subscription"`
		Result       json.RawMessage `json:"result"`
	} `json:"params"`
}

// take processes a message: a notice, or the answer to a subscription. complete is true for the
// last such answer.
func (l *listening) take(content []byte) (notice any, complete bool, err error) {
	var m message
	if err := json.Unmarshal(content, &m); err != nil {
		return nil, false, fmt.Errorf("%w: %q: %w", ErrBadAnswer, shorten(content), err)
	}
	switch {
	case m.Error != nil:
		m.Error.Message = shorten([]byte(m.Error.Message))
		return nil, false, fmt.Errorf("%w: %w", errSubscription, m.Error)
	case m.ID != nil:
		var name uint64
		if *m.ID == 0 || *m.ID > uint64(len(l.subscriptions)) || json.Unmarshal(m.Result, &name) != nil {
			return nil, false, fmt.Errorf("%w: %q is not an answer to a subscription", ErrBadAnswer, shorten(content))
		}
		before := len(l.names)
		l.names[name] = int(*m.ID) - 1
		return nil, before < len(l.names) && len(l.names) == len(l.subscriptions), nil
	}
	place, found := l.names[m.Params.Subscription]
	if !found {
		return nil, false, nil // a notice that arrived before the answer to its subscription
	}
	notice, err = l.subscriptions[place].decode(m.Params.Result)
	if err != nil {
		return nil, false, fmt.Errorf("%w: notice %q: %w", ErrBadAnswer, shorten(content), err)
	}
	return notice, false, nil
}
