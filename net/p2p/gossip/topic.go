package gossip

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"

	pubsub "github.com/libp2p/go-libp2p-pubsub"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/psyche-go/psyche/base/identity"
	"github.com/psyche-go/psyche/net/p2p"
)

const (
	// MaxMessage is the maximum size of a message in bytes, twice the size of an announcement.
	MaxMessage = 512

	maxTopicName = 128 // bytes
	// maxEnvelope is the maximum size of a message including its topic, its author and its
	// signature. Without this limit, authors could hide additional data in these fields, and all
	// members would forward it.
	maxEnvelope = MaxMessage + maxTopicName + 256
	remembered  = 8192 // messages kept to recognise repetitions
)

// Errors of a topic.
var (
	ErrTooLarge = errors.New("gossip message too large")
	errTooMany  = errors.New("too many gossip messages")
	ErrClosed   = errors.New("gossip topic is closed")
	errName     = errors.New("invalid gossip topic name")

	// ErrIgnored is the error that a handler returns for a message that should not be forwarded
	// although its sender is not at fault.
	ErrIgnored = errors.New("gossip message ignored")
)

// Handler processes one message of another member before the node forwards it. An error other than
// ErrIgnored means that no honest member would forward this message, and the node penalises the
// member that forwarded it. Handlers may run concurrently. A Handler must not block, and must not
// call Topic.Close. It may keep and modify data.
type Handler func(from identity.ID, data []byte) error

// errPanicked means that a handler panicked.
var errPanicked = errors.New("the handler panicked")

// Topic is a joined gossip topic.
type Topic struct {
	node    *p2p.Node
	router  *router
	name    string
	topic   *pubsub.Topic
	unjoin  pubsub.RelayCancelFunc
	handler Handler
	logger  *slog.Logger

	cancel context.CancelFunc
	done   chan struct{} // closed when the topic has been left and no handler is running
	err    error         // of leaving; valid after done

	handling sync.RWMutex // held for reading by handlers
	quiet    bool         // guarded by handling; no handler is called any more

	mu   sync.Mutex
	seen *recent
}

// Join joins a topic until Close, the end of ctx, or the end of the node. A node cannot join a
// topic twice at the same time.
func Join(ctx context.Context, n *p2p.Node, topic string, handler Handler) (*Topic, error) {
	if topic == "" || len(topic) > maxTopicName {
		return nil, fmt.Errorf("join gossip topic %.40q…: %w: want 1 to %d bytes", topic, errName, maxTopicName)
	}
	r, err := routerOf(n)
	if err != nil {
		return nil, fmt.Errorf("join gossip topic %q: %w", topic, err)
	}
	t := &Topic{
		node:    n,
		router:  r,
		name:    topic,
		handler: handler,
		logger:  n.Logger().With("topic", topic),
		done:    make(chan struct{}),
		seen:    newRecent(remembered),
	}
	if err := t.subscribe(); err != nil {
		return nil, fmt.Errorf("join gossip topic %q: %w", topic, err)
	}
	ctx, t.cancel = context.WithCancel(ctx)
	go t.run(ctx)
	return t, nil
}

func (t *Topic) subscribe() (err error) {
	if err = t.router.pubsub.RegisterTopicValidator(t.name, t.validate, pubsub.WithValidatorInline(true)); err != nil {
		return err
	}
	if t.topic, err = t.router.pubsub.Join(t.name); err != nil {
		return errors.Join(err, t.router.pubsub.UnregisterTopicValidator(t.name))
	}
	// The validator delivers messages, so the library's own delivery is not needed.
	if t.unjoin, err = t.topic.Relay(); err != nil {
		return errors.Join(err, t.leave())
	}
	if err = t.topic.SetScoreParams(topicScore()); err != nil {
		return errors.Join(err, t.leave())
	}
	t.router.joined(t.name)
	return nil
}

// validate decides whether a message is forwarded, and delivers it. Its author's signature has
// already been verified.
func (t *Topic) validate(_ context.Context, _ peer.ID, m *pubsub.Message) pubsub.ValidationResult {
	if len(m.GetData()) > MaxMessage {
		return pubsub.ValidationReject
	}
	// Peers may already know a member that this node does not know yet, so forwarding its message
	// is not a fault.
	if !t.node.Allows(m.GetFrom()) {
		return pubsub.ValidationIgnore
	}
	// It is also not a fault to forward messages whose author sends too often.
	if !t.router.admits(m.GetFrom(), m.GetSeqno()) {
		t.router.excess.Add(1)
		return pubsub.ValidationIgnore
	}
	return t.receive(m.GetFrom(), m.GetData())
}

// receive delivers a new message to the handler, and decides whether it is forwarded.
func (t *Topic) receive(author peer.ID, data []byte) pubsub.ValidationResult {
	t.handling.RLock()
	defer t.handling.RUnlock()
	from, ok := p2p.Identity(author)
	switch {
	case !ok || t.quiet:
		return pubsub.ValidationIgnore
	case from == t.node.ID() || t.repeats(from, data, false):
		return pubsub.ValidationAccept
	}
	switch err := t.call(from, slices.Clone(data)); {
	case errors.Is(err, errPanicked), errors.Is(err, ErrIgnored):
		return pubsub.ValidationIgnore
	case err != nil:
		t.logger.Debug("gossip refused", "from", from.Short(), "err", err)
		return pubsub.ValidationReject
	}
	t.repeats(from, data, true)
	return pubsub.ValidationAccept
}

// repeats reports whether a message was received before. If remember is set, it also stores the
// message.
func (t *Topic) repeats(from identity.ID, data []byte, remember bool) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if remember {
		return !t.seen.add(from, data)
	}
	return t.seen.has(from, data)
}

// run waits until the topic, its context or the node ends, then leaves.
func (t *Topic) run(ctx context.Context) {
	defer close(t.done)
	defer context.AfterFunc(t.router.ctx, t.cancel)()
	<-ctx.Done()
	t.handling.Lock()
	t.quiet = true
	t.handling.Unlock()
	// If the node has ended, there is nothing to leave.
	if err := t.leave(); err != nil && t.router.ctx.Err() == nil {
		t.err = fmt.Errorf("leave gossip topic %q: %w", t.name, err)
	}
}

// call calls the handler and recovers from a panic, which must not end the node.
func (t *Topic) call(from identity.ID, data []byte) (err error) {
	defer func() {
		if p := recover(); p != nil {
			t.logger.Error("gossip: handler panicked", "from", from.Short(), "panic", p, "stack", string(debug.Stack()))
			err = errPanicked
		}
	}()
	return t.handler(from, data)
}

// Publish sends data to the members that have joined the topic. It refuses messages larger than
// MaxMessage. After a burst of 256 messages it also refuses more than 20 messages a second, over
// all topics of the node, because the network would drop them silently. A nil error does not mean
// that a member received the message. The node's own handler does not receive it.
func (t *Topic) Publish(ctx context.Context, data []byte) error {
	if len(data) > MaxMessage {
		return fmt.Errorf("publish %d bytes on %q: %w: at most %d bytes", len(data), t.name, ErrTooLarge, MaxMessage)
	}
	select {
	case <-t.done:
		return fmt.Errorf("publish on %q: %w", t.name, ErrClosed)
	default:
	}
	// The library keeps the slice until the message has been sent.
	if err := t.topic.Publish(ctx, slices.Clone(data)); err != nil {
		if refused, ok := errors.AsType[pubsub.ValidationError](err); ok && refused.Reason == pubsub.RejectValidationIgnored {
			err = fmt.Errorf("%w: at most %d in a second, after %d", errTooMany, authorPerSecond, authorBurst)
		}
		return fmt.Errorf("publish on %q: %w", t.name, err)
	}
	return nil
}

// Close leaves the topic and waits for the handler to return. Later calls return the result of the
// first.
func (t *Topic) Close() error {
	t.cancel()
	<-t.done
	return t.err
}

func (t *Topic) leave() error {
	t.router.left(t.name)
	if t.unjoin != nil {
		t.unjoin()
	}
	return errors.Join(t.router.pubsub.UnregisterTopicValidator(t.name), t.topic.Close())
}
