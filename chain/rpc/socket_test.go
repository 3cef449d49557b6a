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

func TestListen(t *testing.T) {
	name := transaction.Signature{7}
	e := socketNode(t, func(c *websocket.Conn) {
		for i, want := range []string{
			fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"logsSubscribe","params":[{"mentions":[%q]},{"commitment":"confirmed"}]}`, transaction.PublicKey{1}),
			fmt.Sprintf(`{"jsonrpc":"2.0","id":2,"method":"accountSubscribe","params":[%q,{"encoding":"base64+zstd","commitment":"processed"}]}`, transaction.PublicKey{2}),
			`{"jsonrpc":"2.0","id":3,"method":"slotSubscribe"}`,
		} {
			_, got, err := c.ReadMessage()
			if err != nil || strings.TrimSpace(string(got)) != want {
				t.Errorf("subscription %d: %s, %v, want %s", i, got, err, want)
			}
		}
		write(c, `{"method":"slotNotification","params":{"result":{"slot":1,"parent":0,"root":0},"subscription":30}}`) // before the answer to its subscription
		for i := 3; i >= 1; i-- {
			write(c, `{"jsonrpc":"2.0","id":%d,"result":%d}`, i, 10*i)
		}
		write(c, `{"method":"slotNotification","params":{"result":{"slot":5,"parent":4,"root":3},"subscription":30}}`)
		write(c, `{"method":"logsNotification","params":{"result":{"context":{"slot":6},"value":{"signature":%q,"err":null,"logs":["a"]}},"subscription":10}}`, name)
		write(c, `{"method":"accountNotification","params":{"result":{"context":{"slot":7},"value":%s},"subscription":20}}`, packed([]byte("abc")))
		untilClosed(c)
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var heard []any
	readies := 0
	err := e.Listen(ctx, func() { readies++ }, func(notice any) {
		if heard = append(heard, notice); len(heard) == 3 {
			cancel()
		}
	}, Logs(transaction.PublicKey{1}, Confirmed), AccountChanges(transaction.PublicKey{2}, Processed), Slots())
	if !errors.Is(err, context.Canceled) || readies != 1 {
		t.Fatalf("error %v, ready %d times", err, readies)
	}
	if got := heard[0].(slotNotice); got != (slotNotice{5, 4, 3}) {
		t.Errorf("slot %+v", got)
	}
	if got := heard[1].(LogsNotice); got.Slot != 6 || got.Signature != name || len(got.Logs) != 1 {
		t.Errorf("logs %+v", got)
	}
	if got := heard[2].(AccountNotice); got.Slot != 7 || string(got.Account.Data) != "abc" {
		t.Errorf("account %+v", got)
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
			err := e.Listen(t.Context(), nil, func(any) {}, Slots())
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
	if err := e.Listen(ctx, nil, func(any) {}, Slots()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}
