package localnet

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"
)

// Limits of WebSockets.
const (
	maxSockets       = 256  // per endpoint
	maxSubscriptions = 1000 // per socket
	maxQueue         = 4096 // unread messages of a client, which is dropped at the limit
	writeTimeout     = 10 * time.Second
)

// socket is a client's WebSocket.
type socket struct {
	connection    *websocket.Conn
	queue         chan any
	done          chan struct{}
	once          sync.Once
	subscriptions map[uint64]*subscription // guarded by Server.mu
}

func (s *socket) close() { s.once.Do(func() { close(s.done) }) }

// send queues a message. It drops a client that does not read.
func (s *socket) send(message any) {
	select {
	case s.queue <- message:
	default:
		s.close()
	}
}

// answered enables the notifications of subscriptions whose answers are queued.
func (s *socket) answered() {
	for _, sub := range s.subscriptions {
		sub.answered = true
	}
}

var upgrader = websocket.Upgrader{HandshakeTimeout: writeTimeout}

// serveSocket serves a client until the connection ends.
func (e *Endpoint) serveSocket(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	full := len(e.sockets) >= maxSockets
	e.mu.Unlock()
	if full {
		http.Error(w, "Too many connections", http.StatusServiceUnavailable)
		return
	}
	connection, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // the upgrader has answered
	}
	connection.SetReadLimit(maxRequest)
	s := &socket{connection: connection, queue: make(chan any, maxQueue), done: make(chan struct{}), subscriptions: map[uint64]*subscription{}}
	e.mu.Lock()
	e.sockets[s] = true
	dead := e.faults.Dead
	e.mu.Unlock()
	if dead {
		s.close()
	}
	var writer sync.WaitGroup
	writer.Go(s.write)
	defer func() {
		s.close()
		writer.Wait()
		e.mu.Lock()
		delete(e.sockets, s)
		e.mu.Unlock()
	}()
	for {
		_, body, err := connection.ReadMessage()
		if err != nil {
			return
		}
		if a := handle(body, func(q *request) response { return e.callSocket(s, q) }); a != nil {
			s.send(a)
		}
		e.server.change(s.answered)
	}
}

// write sends queued messages, and closes the connection when the socket is closed.
func (s *socket) write() {
	defer func() { _ = s.connection.Close() }()
	for {
		select {
		case <-s.done:
			return
		case message := <-s.queue:
			raw, err := json.Marshal(message)
			if err != nil || s.connection.SetWriteDeadline(time.Now().Add(writeTimeout)) != nil {
				return
			}
			if err := s.connection.WriteMessage(websocket.TextMessage, raw); err != nil {
				return
			}
		}
	}
}

// callSocket executes a call from a WebSocket: subscriptions and all other methods.
func (e *Endpoint) callSocket(s *socket, q *request) response {
	subscribe, known := subscribers[q.Method]
	unsubscribes := unsubscribers[q.Method]
	if !known && !unsubscribes {
		return e.call(q)
	}
	p, err := q.parameters()
	if err != nil {
		return answer(q.ID, nil, err)
	}
	e.server.mu.Lock()
	defer e.server.mu.Unlock()
	if unsubscribes {
		return e.unsubscribe(s, q, p)
	}
	if len(s.subscriptions) >= maxSubscriptions {
		return answer(q.ID, nil, invalid("%d subscriptions, at most %d", len(s.subscriptions), maxSubscriptions))
	}
	sub, err := attempt(func() *subscription { return subscribe(e, p) })
	if err != nil {
		return answer(q.ID, nil, err)
	}
	e.server.subscribed++
	sub.id = e.server.subscribed
	s.subscriptions[sub.id] = sub
	return answer(q.ID, sub.id, nil)
}

func (e *Endpoint) unsubscribe(s *socket, q *request, p parameters) response {
	id, err := attempt(func() (id uint64) {
		p.read(0, "subscription", &id)
		return id
	})
	if err != nil {
		return answer(q.ID, nil, err)
	}
	if s.subscriptions[id] == nil {
		return answer(q.ID, nil, invalid("Invalid subscription id."))
	}
	delete(s.subscriptions, id)
	return answer(q.ID, true, nil)
}
