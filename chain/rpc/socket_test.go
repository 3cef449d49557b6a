package rpc

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"

	"github.com/psyche-go/psyche/chain/transaction"
)

// socketNode calls talk for every WebSocket, and then closes it.
func socketNode(t *testing.T, talk func(c *websocket.Conn)) *Endpoint {
	t.Helper()
	upgrader := websocket.Upgrader{}
	return endpoint(t, serve(t, func(w http.ResponseWriter, r *http.Request) {
		c, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = c.Close() }()
		talk(c)
	}))
}

func write(c *websocket.Conn, format string, args ...any) {
	_ = c.WriteMessage(websocket.TextMessage, fmt.Appendf(nil, format, args...))
}

// untilClosed reads until the other side closes the socket.
func untilClosed(c *websocket.Conn) {
	for {
		if _, _, err := c.ReadMessage(); err != nil {
			return
		}
	}
}

func TestListenLogs(t *testing.T) {
	name := transaction.Signature{7}
	e := socketNode(t, func(c *websocket.Conn) {
		want := fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"logsSubscribe","params":[{"mentions":[%q]},{"commitment":"confirmed"}]}`, transaction.PublicKey{1})
		if _, got, err := c.ReadMessage(); err != nil || strings.TrimSpace(string(got)) != want {
			t.Errorf("subscription: %s, %v, want %s", got, err, want)
		}
		notify := func(slot, subscription int) {
			write(c, `{"method":"logsNotification","params":{"result":{"context":{"slot":%d},"value":{"signature":%q,"err":null,"logs":["a"]}},"subscription":%d}}`, slot, name, subscription)
		}
		notify(1, 10) // before the answer
		write(c, `{"jsonrpc":"2.0","id":1,"result":10}`)
		notify(2, 30)
		notify(6, 10)
		untilClosed(c)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	readies := 0
	err := e.ListenLogs(ctx, transaction.PublicKey{1}, Confirmed, func() { readies++ }, func(got LogsNotice) {
		if got.Slot != 6 || got.Signature != name || len(got.Logs) != 1 {
			t.Errorf("logs %+v", got)
		}
		cancel()
	})
	if !errors.Is(err, context.Canceled) || readies != 1 {
		t.Fatalf("error %v, ready %d times", err, readies)
	}
}

func TestListenEnds(t *testing.T) {
	for name, test := range map[string]struct {
		talk func(c *websocket.Conn)
		want error
	}{
		"refused":    {func(c *websocket.Conn) { write(c, `{"id":1,"error":{"code":-32601,"message":"no"}}`) }, errSubscription},
		"garbage":    {func(c *websocket.Conn) { write(c, `garbage`) }, ErrBadAnswer},
		"another id": {func(c *websocket.Conn) { write(c, `{"id":9,"result":1}`) }, ErrBadAnswer},
		"no number":  {func(c *websocket.Conn) { write(c, `{"id":1,"result":"x"}`) }, ErrBadAnswer},
		"bad notice": {func(c *websocket.Conn) {
			write(c, `{"id":1,"result":1}`)
			write(c, `{"params":{"subscription":1,"result":7}}`)
		}, ErrBadAnswer},
		"hangs up":    {func(*websocket.Conn) {}, ErrUnreachable},
		"huge":        {func(c *websocket.Conn) { write(c, "%s", strings.Repeat(" ", smallAnswer+1)); untilClosed(c) }, ErrUnreachable},
		"says no way": {nil, ErrUnreachable},
	} {
		t.Run(name, func(t *testing.T) {
			e := endpoint(t, serve(t, http.NotFound))
			if test.talk != nil {
				e = socketNode(t, test.talk)
			}
			err := e.ListenLogs(t.Context(), transaction.PublicKey{}, Confirmed, func() {}, func(LogsNotice) {})
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), e.Name()) {
				t.Errorf("error %v, want %v", err, test.want)
			}
		})
	}
}

// TestListenEndsWithItsContext checks that listening ends with its context, also if the node sends
// nothing.
func TestListenEndsWithItsContext(t *testing.T) {
	e := socketNode(t, untilClosed)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := e.ListenLogs(ctx, transaction.PublicKey{}, Confirmed, func() {}, func(LogsNotice) {}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}
